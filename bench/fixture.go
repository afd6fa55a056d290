package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// A fixture is the servers that all runs share: one or several, each behind a proxy that
// adds a delay.
type fixture struct {
	nodes   []*node
	version string
	at      string       // end of the names of the peers for these servers; the tables omit it
	ping    string       // job that measures the round trip time
	names   int          // number of names used
	unlimit func() error // ends a limit of the processor time; or nil
}

type node struct {
	server
	proxy *redistest.Proxy // nil for a local file
	dead  bool
}

// A server is a Redis or PostgreSQL server.
type server interface {
	Addr() string
	Kill()
	Restart() error
	Stop() // and remove its files

	// Pause stops the server, which keeps its connections open.
	Pause() error
	Resume() error

	// work adds the work of the server so far.
	work(u *usage) error

	// held returns the number of held names that contain a text.
	held(text string) (int, error)

	// clear removes all locks.
	clear() error
}

// add adds a server with a proxy.
func (b *fixture) add(s server) error {
	proxy, err := redistest.StartProxy(s.Addr())
	if err != nil {
		s.Stop()
		return err
	}
	b.nodes = append(b.nodes, &node{server: s, proxy: proxy})
	return nil
}

func (b *fixture) close() {
	for _, n := range b.nodes {
		if n.proxy != nil {
			n.proxy.Close()
		}
		n.Stop()
	}
}

// addrs returns the addresses of the servers.
func (b *fixture) addrs() (addrs []string) {
	for _, n := range b.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// proxyAddrs returns the addresses of the proxies.
func (b *fixture) proxyAddrs() (addrs []string) {
	for _, n := range b.nodes {
		addrs = append(addrs, n.proxy.Addr())
	}
	return addrs
}

// delay sets the one-way delay of all proxies.
func (b *fixture) delay(d time.Duration) {
	for _, n := range b.nodes {
		n.proxy.Delay(d)
	}
}

// name returns an unused name: keys that a peer leaves behind must not affect the next
// run.
func (b *fixture) name() string {
	b.names++
	return fmt.Sprintf("run%d", b.names)
}

// usage is the work of the servers: their commands by name, including those called by
// scripts, and their CPU time.
type usage struct {
	calls map[string]float64 // of PostgreSQL: see pgServer.work
	cpu   time.Duration

	// of Redis, at the moment
	connections float64
	memory      float64 // in bytes
}

func (b *fixture) usage() (usage, error) {
	u := usage{calls: make(map[string]float64)}
	for _, n := range b.nodes {
		if n.dead {
			continue
		}
		if err := n.work(&u); err != nil {
			return usage{}, err
		}
	}
	return u, nil
}

// since returns the work since an earlier usage.
func (u usage) since(before usage) usage {
	d := usage{calls: make(map[string]float64), cpu: u.cpu - before.cpu, connections: u.connections, memory: u.memory}
	for name, calls := range u.calls {
		d.calls[name] = calls - before.calls[name]
	}
	return d
}

// sum returns the number of calls of the named commands.
func (u usage) sum(names ...string) (total float64) {
	for _, name := range names {
		total += u.calls[name]
	}
	return total
}

// housekeeping are the commands of this program itself, and those that clients send once
// for each connection.
var housekeeping = []string{"info", "ping", "auth", "hello", "client", "command", "select"}

// executed returns the number of all calls without housekeeping.
func (u usage) executed() (total float64) {
	for name, calls := range u.calls {
		total += calls
		command, _, _ := strings.Cut(name, "|")
		for _, other := range housekeeping {
			if command == other {
				total -= calls
			}
		}
	}
	return total
}
