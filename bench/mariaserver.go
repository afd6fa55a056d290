package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/mysqlstore"
)

const mariaDatabase = "mysql" // it is there

// openMariaDibs opens dibs on the server with the address.
func openMariaDibs(s endpoint) (peer, error) {
	db, err := sql.Open("mysql", mysqltest.DSN(s.addr, mariaDatabase))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return dibsPeer{dibs.New(mysqlstore.New(db), dibs.TTL(s.ttl))}, nil
}

// A mariaServer is a MariaDB server.
type mariaServer struct {
	*mysqltest.Server
	admin *sql.DB
	store *mysqlstore.Store
	pid   int
}

// newMaria starts a MariaDB server with dibs' tables.
func newMaria() (*fixture, error) {
	started, err := mysqltest.Start()
	if err != nil {
		return nil, err
	}
	s := &mariaServer{Server: started}
	b := &fixture{at: "@mariadb"}
	if b.version, err = s.setup(); err != nil {
		s.Stop()
		return nil, err
	}
	err = b.add(s)
	return b, err
}

// setup creates the tables and returns the version.
func (s *mariaServer) setup() (version string, err error) {
	if s.admin, err = sql.Open("mysql", s.DSN(mariaDatabase)); err != nil {
		return "", err
	}
	s.store = mysqlstore.New(s.admin)
	if err := s.store.Migrate(context.Background()); err != nil {
		return "", err
	}
	var file string
	if err := s.admin.QueryRow("SELECT @@pid_file, @@version").Scan(&file, &version); err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	s.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return "MariaDB " + version, err
}

// Stop implements server.
func (s *mariaServer) Stop() {
	if s.admin != nil {
		_ = s.admin.Close()
	}
	_ = s.Close() // its directory is temporary
}

// Pause implements server.
func (s *mariaServer) Pause() error { return pause(s.pid) }

// Resume implements server.
func (s *mariaServer) Resume() error { return resume(s.pid) }

// work implements server.
func (s *mariaServer) work(u *usage) error {
	u.cpu += cpuOf(s.pid)
	return nil
}

// held implements server.
func (s *mariaServer) held(text string) (int, error) {
	names, err := s.store.List(context.Background(), "*"+text+"*")
	return len(names), err
}

// clear implements server.
func (s *mariaServer) clear() error {
	for _, table := range []string{"names", "holders", "waiters"} {
		if _, err := s.admin.Exec(fmt.Sprintf("DELETE FROM dibs_%s", table)); err != nil {
			return err
		}
	}
	return nil
}
