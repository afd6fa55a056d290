package redisstore_test

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

//go:embed testdata/fill.lua
var fillScript string

// A lock that was renewed costs the server no more than one that was not: the value of its key
// has the fence. The other keys of its slot, of which a server has at most 16,384, count as a part of
// it.
func TestMemoryOfALease(t *testing.T) {
	t.Parallel()
	const locks, most = 10_000, 280 // bytes of each, with names of 16 bytes
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	renew := make([]driver.ExtendRequest, locks)
	c := driver.AcquireRequest{Client: "web-7:12345:q3ZkAbCdEfGhIjKl", TTL: time.Hour, Weight: 1, Limit: 1}
	acquire := func(i int) {
		c.Until = time.Now().Add(generous)
		c.Name, c.Token = fmt.Sprintf("order:%010d", i), fmt.Sprintf("%s:m-%020d", c.Client, i)
		reply, err := s.Acquire(t.Context(), c)
		if err != nil || !reply.Held {
			t.Fatal(reply, err)
		}
		renew[i] = driver.ExtendRequest{Name: c.Name, Token: c.Token, Client: c.Client, Fence: reply.Fence, TTL: c.TTL, Weight: 1, Limit: 1}
	}
	server.MustCmd(t, "EVAL", fillScript, "0") // so that the tables of the server do not grow during the test
	acquire(0)
	begin := usedMemory(t, server)
	for i := range locks {
		acquire(i)
	}
	granted := (usedMemory(t, server) - begin) / locks
	for _, err := range s.Extend(t.Context(), renew) {
		if err != nil {
			t.Fatal(err)
		}
	}
	renewed := (usedMemory(t, server) - begin) / locks
	t.Logf("bytes of a lock: %d after its grant, %d after a renewal", granted, renewed)
	for _, key := range []string{c.Name, "{" + c.Name + "}" + meta} {
		if n, ok := server.MustCmd(t, "MEMORY", "USAGE", key, "SAMPLES", "0").(int64); ok {
			t.Logf("MEMORY USAGE %s: %d", key, n)
		}
	}
	if renewed > most {
		t.Errorf("a renewed lock has %d bytes, want at most %d", renewed, most)
	}
	if n := server.MustCmd(t, "EXISTS", "{"+c.Name+"}"+meta); n != int64(0) {
		t.Error("a lease without waiters has metadata")
	}
}

// usedMemory returns the memory that a server uses for its keys, in bytes: without that of its
// clients and scripts.
func usedMemory(t *testing.T, server *redistest.Server) (used int) {
	t.Helper()
	text, _ := server.MustCmd(t, "INFO", "memory").(string)
	found := 0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		sign, counts := map[string]int{"used_memory": 1, "mem_clients_normal": -1, "used_memory_scripts": -1}[name]
		if !counts {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		used += sign * n
		found++
	}
	if found != 3 {
		t.Fatalf("the server does not say how much memory it uses: %s", text)
	}
	return used
}
