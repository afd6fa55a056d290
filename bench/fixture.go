package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// A fixture contains the servers shared by all runs. Each is behind a proxy, which can add a delay.
type fixture struct {
	nodes   []*node
	version string
	at      string       // suffix of the peers' names for these servers; the tables omit it
	ping    string       // job for the round-trip time
	names   int          // number of used names
	unlimit func() error // ends a limit on the CPU time; or nil
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

	// work adds the server's work until now.
	work(u *usage) error

	// held returns the number of held names with a text.
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

// addrs returns the servers' addresses.
func (b *fixture) addrs() (addrs []string) {
	for _, n := range b.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// proxyAddrs returns the proxies' addresses.
func (b *fixture) proxyAddrs() (addrs []string) {
	for _, n := range b.nodes {
		addrs = append(addrs, n.proxy.Addr())
	}
	return addrs
}

// delay sets all proxies' one-way delay.
func (b *fixture) delay(d time.Duration) {
	for _, n := range b.nodes {
		n.proxy.Delay(d)
	}
}

// name returns an unused name: keys left behind by a peer should not affect the next run.
func (b *fixture) name() string {
	b.names++
	return fmt.Sprintf("run%d", b.names)
}

// usage is the servers' work: their commands by name, including those called by scripts, and their
// CPU time.
type usage struct {
	calls map[string]float64 // for PostgreSQL: see pgServer.work
	cpu   time.Duration

	// for Redis, at the moment
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

// sum returns the number of calls to the named commands.
func (u usage) sum(names ...string) (total float64) {
	for _, name := range names {
		total += u.calls[name]
	}
	return total
}

// housekeeping are this program's own commands, and the commands clients send once for each
// connection.
var housekeeping = []string{"info", "ping", "auth", "hello", "client", "command", "select"}

// executed returns the number of calls without housekeeping.
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
