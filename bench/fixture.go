package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/internal/redistest"
)

// A fixture is the servers that all runs share: one or several, each behind a proxy that
// adds a delay.
type fixture struct {
	dir     string
	nodes   []*node
	version string
	names   int // number of names used
}

type node struct {
	*redistest.Server
	proxy *redistest.Proxy
	dead  bool
}

func newFixture(nodes int) (*fixture, error) {
	dir, err := os.MkdirTemp("", "dibs-bench-")
	if err != nil {
		return nil, err
	}
	b := &fixture{dir: dir}
	if err := b.setup(nodes); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *fixture) setup(nodes int) error {
	for i := range nodes {
		if err := b.add(filepath.Join(b.dir, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	info, err := b.nodes[0].info("server")
	if err != nil {
		return err
	}
	b.version = "redis-server " + info["redis_version"]
	if valkey := info["valkey_version"]; valkey != "" {
		b.version = "valkey-server " + valkey
	}
	return nil
}

func (b *fixture) add(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	server, err := redistest.StartServer(dir)
	if err != nil {
		return err
	}
	proxy, err := redistest.StartProxy(server.Addr())
	if err != nil {
		server.Stop()
		return err
	}
	b.nodes = append(b.nodes, &node{Server: server, proxy: proxy})
	return nil
}

func (b *fixture) close() {
	for _, n := range b.nodes {
		n.proxy.Close()
		n.Stop()
	}
	os.RemoveAll(b.dir)
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

func (n *node) info(section string) (map[string]string, error) {
	reply, err := n.Cmd("INFO", section)
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}

// usage is the work of the servers: their commands by name, including those called by
// scripts, and their CPU time.
type usage struct {
	calls map[string]float64
	cpu   time.Duration
}

func (b *fixture) usage() (usage, error) {
	u := usage{calls: make(map[string]float64)}
	for _, n := range b.nodes {
		if n.dead {
			continue
		}
		info, err := n.info("all")
		if err != nil {
			return usage{}, err
		}
		if err := u.add(info); err != nil {
			return usage{}, err
		}
	}
	return u, nil
}

// add adds the INFO of one server.
func (u *usage) add(info map[string]string) error {
	for key, value := range info {
		name, ok := strings.CutPrefix(key, "cmdstat_")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, err := strconv.ParseFloat(calls, 64)
		if err != nil {
			return fmt.Errorf("INFO: %s: %w", key, err)
		}
		u.calls[name] += n
	}
	for _, key := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			return fmt.Errorf("INFO: %s: %w", key, err)
		}
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	return nil
}

// since returns the work since an earlier usage.
func (u usage) since(before usage) usage {
	d := usage{calls: make(map[string]float64), cpu: u.cpu - before.cpu}
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
