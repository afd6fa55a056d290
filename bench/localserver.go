package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/localstore"
)

// openLocalDibs opens dibs on the file named by the address.
func openLocalDibs(s endpoint) (peer, error) {
	store, err := localstore.Open(s.addr)
	if err != nil {
		return nil, err
	}
	return dibsPeer{dibs.New(store, dibs.TTL(s.ttl))}, nil
}

// A localFile is a localstore's file, in place of a server.
type localFile struct {
	dir string
	db  *sql.DB
	tx  *sql.Conn // for Pause
}

// newLocal returns a fixture with a file.
func newLocal() (*fixture, error) {
	dir, err := os.MkdirTemp("", "dibs-bench-")
	if err != nil {
		return nil, err
	}
	f := &localFile{dir: dir}
	store, err := localstore.Open(f.Addr()) // creates it
	if err == nil {
		err = store.Close()
	}
	if err == nil {
		f.db, err = sql.Open("sqlite", f.Addr())
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &fixture{at: "@local", version: "local file", nodes: []*node{{server: f}}}, nil
}

// Addr implements server.
func (f *localFile) Addr() string { return filepath.Join(f.dir, "locks") }

// Kill implements server: there is nothing to kill.
func (f *localFile) Kill() {}

// Restart implements server.
func (f *localFile) Restart() error { return nil }

// Stop implements server.
func (f *localFile) Stop() {
	_ = f.db.Close() // its directory is temporary
	_ = os.RemoveAll(f.dir)
}

// Pause implements server: a writing transaction blocks all others.
func (f *localFile) Pause() (err error) {
	if f.tx, err = f.db.Conn(context.Background()); err != nil {
		return err
	}
	_, err = f.tx.ExecContext(context.Background(), "pragma busy_timeout = 10000; begin immediate")
	return err
}

// Resume implements server.
func (f *localFile) Resume() error {
	if _, err := f.tx.ExecContext(context.Background(), "rollback"); err != nil {
		return err
	}
	return f.tx.Close()
}

// work implements server. The clients do all the work on a file.
func (f *localFile) work(*usage) error { return nil }

// held implements server.
func (f *localFile) held(text string) (n int, err error) {
	err = f.db.QueryRow("select count(*) from entries where instr(name, cast(? as blob)) > 0", text).Scan(&n)
	return n, err
}

// clear implements server: the leases end with their processes.
func (f *localFile) clear() error { return nil }
