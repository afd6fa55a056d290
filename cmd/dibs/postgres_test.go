package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/dibslock/dibs/internal/pgtest"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/jackc/pgx/v5"
)

// A postgres is a server that all scripts share, each with databases of its own. It starts when
// the first script needs it.
type postgres struct {
	once   sync.Once
	server *pgtest.Server
	err    error
	mu     sync.Mutex
	last   int
}

func (p *postgres) start() (*pgtest.Server, error) {
	p.once.Do(func() { p.server, p.err = pgtest.Start("fsync=on", "idle_in_transaction_session_timeout=60000") })
	return p.server, p.err
}

func (p *postgres) close() error {
	if p.server == nil {
		return nil
	}
	return p.server.Close()
}

// create creates a database and returns its name.
func (p *postgres) create() (name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	name = fmt.Sprintf("script%d", p.last)
	return name, execOn(p.server.URL(), "CREATE DATABASE "+name)
}

func execOn(url, statement string) error {
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

// databaseURL returns the URL of a database behind an address.
func databaseURL(addr, name string) string {
	return strings.Replace(pgtest.URL(addr), "/postgres?", "/"+name+"?", 1)
}

// postgres is a command of the scripts: see TestScripts.
func (w *scriptState) postgres(args []string) {
	do, id := args[0], args[1]
	proxy := w.proxies[id]
	switch do {
	case "new":
		server, err := w.shared.start()
		w.Check(err)
		name, err := w.shared.create()
		w.Check(err)
		proxy, err = redistest.StartProxy(server.Addr())
		w.Check(err)
		w.proxies[id] = proxy
		w.Setenv(id, databaseURL(proxy.Addr(), name))
		w.Setenv(id+"_AT", proxy.Addr()+"/"+name+"?sslmode=disable")
	case "pause":
		proxy.Freeze()
	case "resume":
		proxy.Thaw()
	case "kill":
		proxy.Close()
	case "sql":
		w.Check(execOn(w.Getenv(id), args[2]))
	default:
		w.Fatalf("unknown command: postgres %s", do)
	}
}
