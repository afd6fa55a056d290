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

// A renewed lock should use no more server memory than an unrenewed lock: the key's value contains
// the fence. The slot's other keys, in at most 16,384 slots, count as a part of each lock.
func TestMemoryOfALease(t *testing.T) {
	t.Parallel()
	const locks, most = 10_000, 280 // bytes for each, with names of 16 bytes
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	renew := make([]driver.ExtendRequest, locks)
	r := driver.AcquireRequest{Client: "web-7:12345:q3ZkAbCdEfGhIjKl", TTL: time.Hour, Weight: 1, Limit: 1}
	acquire := func(i int) {
		r.Until = time.Now().Add(generous)
		r.Name, r.Token = fmt.Sprintf("order:%010d", i), fmt.Sprintf("%s:m-%020d", r.Client, i)
		reply, err := s.Acquire(t.Context(), r)
		if err != nil || !reply.Held {
			t.Fatal(reply, err)
		}
		renew[i] = driver.ExtendRequest{Name: r.Name, Token: r.Token, Client: r.Client, Fence: reply.Fence, TTL: r.TTL, Weight: 1, Limit: 1}
	}
	server.MustCmd(t, "EVAL", fillScript, "0") // so that the server's tables do not grow during the test
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
	for _, key := range []string{r.Name, "{" + r.Name + "}" + meta} {
		if n, ok := server.MustCmd(t, "MEMORY", "USAGE", key, "SAMPLES", "0").(int64); ok {
			t.Logf("MEMORY USAGE %s: %d", key, n)
		}
	}
	if renewed > most {
		t.Errorf("a renewed lock has %d bytes, want at most %d", renewed, most)
	}
	if n := server.MustCmd(t, "EXISTS", "{"+r.Name+"}"+meta); n != int64(0) {
		t.Error("a lease without waiters has metadata")
	}
}

// usedMemory returns a server's memory for keys, in bytes, without clients and scripts.
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
