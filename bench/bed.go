package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/internal/redistest"
)

// A bed is what the runs lie on: one server for all of them, and a proxy that
// makes the way to it longer.
type bed struct {
	dir     string
	server  *redistest.Server
	proxy   *redistest.Proxy
	version string
	names   int // given out
}

func newBed() (*bed, error) {
	dir, err := os.MkdirTemp("", "dibs-bench-")
	if err != nil {
		return nil, err
	}
	server, err := redistest.StartServer(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	b := &bed{dir: dir, server: server}
	if err := b.setup(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bed) setup() error {
	proxy, err := redistest.StartProxy(b.server.Addr())
	if err != nil {
		return err
	}
	b.proxy = proxy
	info, err := b.info("server")
	if err != nil {
		return err
	}
	b.version = "redis-server " + info["redis_version"]
	if valkey := info["valkey_version"]; valkey != "" {
		b.version = "valkey-server " + valkey
	}
	return nil
}

func (b *bed) close() {
	if b.proxy != nil {
		b.proxy.Close()
	}
	b.server.Stop()
	os.RemoveAll(b.dir)
}

// name returns a name that no run has used: what a peer leaves behind when a run
// ends must not be in the way of the next one.
func (b *bed) name() string {
	b.names++
	return fmt.Sprintf("run%d", b.names)
}

func (b *bed) info(section string) (map[string]string, error) {
	reply, err := b.server.Cmd("INFO", section)
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

// usage is what a server has done: its commands by name, those called by scripts
// included, and its processor time.
type usage struct {
	calls map[string]float64
	cpu   time.Duration
}

func (b *bed) usage() (usage, error) {
	info, err := b.info("all")
	if err != nil {
		return usage{}, err
	}
	u := usage{calls: make(map[string]float64)}
	for key, value := range info {
		name, ok := strings.CutPrefix(key, "cmdstat_")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		if u.calls[name], err = strconv.ParseFloat(calls, 64); err != nil {
			return usage{}, fmt.Errorf("INFO: %s: %w", key, err)
		}
	}
	for _, key := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			return usage{}, fmt.Errorf("INFO: %s: %w", key, err)
		}
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	return u, nil
}

// since is what has been done since an earlier usage.
func (u usage) since(before usage) usage {
	d := usage{calls: make(map[string]float64), cpu: u.cpu - before.cpu}
	for name, calls := range u.calls {
		d.calls[name] = calls - before.calls[name]
	}
	return d
}

// sum is how often the named commands were called.
func (u usage) sum(names ...string) (total float64) {
	for _, name := range names {
		total += u.calls[name]
	}
	return total
}

// housekeeping is what this program does beside the peers, and what clients do
// once for each connection.
var housekeeping = []string{"info", "ping", "auth", "hello", "client", "command", "select"}

// executed is how many commands were called, housekeeping aside.
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
