package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
)

// newRedis starts Redis servers. args are for redis-server.
func newRedis(nodes int, args ...string) (*fixture, error) {
	b := &fixture{ping: "ping"}
	for range nodes {
		s, err := startRedis(args...)
		if err == nil {
			err = b.add(s)
		}
		if err == nil {
			b.version, err = s.version()
		}
		if err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// A redisServer is a Redis server with its own directory.
type redisServer struct {
	*redistest.Server
	dir string
}

// startRedis starts a server. args are for redis-server.
func startRedis(args ...string) (redisServer, error) {
	dir, err := os.MkdirTemp("", "dibs-bench-")
	if err != nil {
		return redisServer{}, err
	}
	s, err := redistest.StartServer(dir, args...)
	if err != nil {
		os.RemoveAll(dir)
		return redisServer{}, err
	}
	return redisServer{s, dir}, nil
}

func (r redisServer) Stop() {
	r.Server.Stop()
	os.RemoveAll(r.dir)
}

func (r redisServer) version() (string, error) {
	info, err := r.info("server")
	if valkey := info["valkey_version"]; valkey != "" {
		return "valkey-server " + valkey, err
	}
	return "redis-server " + info["redis_version"], err
}

func (r redisServer) info(section string) (map[string]string, error) {
	reply, err := r.Cmd("INFO", section)
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

// work implements server.
func (r redisServer) work(u *usage) error {
	info, err := r.info("all")
	if err != nil {
		return err
	}
	return u.add(info)
}

// add adds a server's INFO.
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
	for key, sum := range map[string]*float64{"connected_clients": &u.connections, "used_memory": &u.memory} {
		n, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			return fmt.Errorf("INFO: %s: %w", key, err)
		}
		*sum += n
	}
	return nil
}

// held implements server. It counts a name once, with any prefix.
func (r redisServer) held(text string) (int, error) {
	found := make(map[string]bool)
	for cursor := "0"; ; {
		reply, err := r.Cmd("SCAN", cursor, "MATCH", "*"+text+"*", "COUNT", "10000")
		if err != nil {
			return 0, err
		}
		page, _ := reply.([]any)
		if len(page) != 2 {
			return 0, fmt.Errorf("SCAN: unexpected reply %v", reply)
		}
		keys, _ := page[1].([]any)
		for _, key := range keys {
			found[fmt.Sprint(key)] = true
		}
		if cursor, _ = page[0].(string); cursor == "0" {
			return len(found), nil
		}
	}
}

// clear implements server.
func (r redisServer) clear() error {
	_, err := r.Cmd("FLUSHALL")
	return err
}
