package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/dibslock/dibs/internal/test/etcdtest"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/jackc/pgx/v5"
)

// A databaseServer is a server shared by all scripts, each with its own databases. It starts when
// the first script needs it.
type databaseServer struct {
	kind     string // the scripts' command, and the condition
	missing  error  // open's error if no server is installed
	required string // the environment variable with which a missing server is a failure
	open     func() (sharedServer, error)

	once   sync.Once
	server sharedServer
	err    error
	mu     sync.Mutex
	last   int
}

type sharedServer interface {
	Addr() string
	Close() error
	execute(database, statement string) error
	url(addr, database string) string
}

func newDatabaseServers() map[string]*databaseServer {
	return map[string]*databaseServer{
		"postgres": {kind: "postgres", missing: pgtest.ErrNoServer, required: "DIBS_REQUIRE_POSTGRES", open: func() (sharedServer, error) {
			s, err := pgtest.Start("fsync=on", "idle_in_transaction_session_timeout=60000")
			return postgres{s}, err
		}},
		"mariadb": {kind: "mariadb", missing: mysqltest.ErrNoServer, required: "DIBS_REQUIRE_MARIADB", open: func() (sharedServer, error) {
			s, err := mysqltest.Start("--innodb-flush-log-at-trx-commit=1", "--idle-transaction-timeout=60")
			return mariadb{s}, err
		}},
		"etcd": {kind: "etcd", missing: etcdtest.ErrNoServer, required: "DIBS_REQUIRE_ETCD", open: func() (sharedServer, error) {
			s, err := etcdtest.Start()
			return etcd{s}, err
		}},
		"zookeeper": {kind: "zookeeper", missing: zktest.ErrNoServer, required: "DIBS_REQUIRE_ZOOKEEPER", open: func() (sharedServer, error) {
			s, err := zktest.Start("maxSessionTimeout=60000") // for TTLs of 30 s
			return zookeeper{s}, err
		}},
	}
}

func (d *databaseServer) start() (sharedServer, error) {
	d.once.Do(func() { d.server, d.err = d.open() })
	return d.server, d.err
}

// installed reports whether scripts can use the server.
func (d *databaseServer) installed() (bool, error) {
	_, err := d.start()
	if errors.Is(err, d.missing) && os.Getenv(d.required) == "" {
		return false, nil
	}
	return true, err
}

func (d *databaseServer) close() error {
	if d.server == nil || d.err != nil {
		return nil
	}
	return d.server.Close()
}

// create creates a database and returns its name.
func (d *databaseServer) create() (name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	name = fmt.Sprintf("script%d", d.last)
	return name, d.server.execute("", "CREATE DATABASE "+name)
}

type postgres struct{ *pgtest.Server }

func (p postgres) url(addr, database string) string {
	return strings.Replace(pgtest.URL(addr), "/postgres?", "/"+database+"?", 1)
}

func (p postgres) execute(database, statement string) error {
	url := p.URL()
	if database != "" {
		url = p.url(p.Addr(), database)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// In etcd, each script has its own prefix.
type etcd struct{ *etcdtest.Server }

func (etcd) url(addr, prefix string) string { return "etcd://" + addr + "/" + prefix }

func (etcd) execute(_, _ string) error { return nil }

// In ZooKeeper, each script has its own path.
type zookeeper struct{ *zktest.Server }

func (zookeeper) url(addr, path string) string { return "zk://" + addr + "/" + path }

func (zookeeper) execute(_, _ string) error { return nil }

type mariadb struct{ *mysqltest.Server }

func (m mariadb) url(addr, database string) string { return "mysql://root@" + addr + "/" + database }

func (m mariadb) execute(database, statement string) error {
	db, err := sql.Open("mysql", m.DSN(database)+"&multiStatements=true")
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// database is a command for scripts: see TestScripts.
func (w *scriptState) database(d *databaseServer, args []string) {
	do, id := args[0], args[1]
	proxy := w.proxies[id]
	switch do {
	case "new":
		server, err := d.start()
		w.Check(err)
		name, err := d.create()
		w.Check(err)
		proxy, err = redistest.StartProxy(server.Addr())
		w.Check(err)
		w.proxies[id], w.databases[id] = proxy, name
		url := server.url(proxy.Addr(), name)
		w.Setenv(id, url)
		_, at, _ := strings.Cut(url, "@")
		w.Setenv(id+"_AT", at)
	case "pause":
		proxy.Freeze()
	case "resume":
		proxy.Thaw()
	case "kill":
		proxy.Close()
	case "sql":
		statement := args[2]
		if file, ok := strings.CutPrefix(statement, "@"); ok {
			statement = w.ReadFile(file)
		}
		w.Check(d.server.execute(w.databases[id], statement))
	case "client":
		w.Check(d.server.(mariadb).Feed(w.databases[id], w.ReadFile(args[2]), args[3:]...))
	default:
		w.Fatalf("unknown command: %s %s", d.kind, do)
	}
}
