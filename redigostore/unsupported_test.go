package redigostore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redigostore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/gomodule/redigo/redis"
)

// On a cluster, a call for a key on another node returns an error that names the adapters to use.
func TestClusterIsUnsupported(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	owner, err := cluster.MasterOf(redistest.Slot(key))
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range cluster.Nodes() {
		if node == owner {
			continue
		}
		for _, options := range [][]redisstore.Option{nil, {redisstore.WithReplicas(1, time.Second)}} {
			_, err := open(t, redigostore.New(pool(t, node.Addr()), options...)).Mutex(job).Lock(drill.Within(t, drill.Generous))
			if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "use goredisstore or rueidisstore") {
				t.Errorf("got %v, want ErrInvalid that names other adapters", err)
			}
		}
	}
}

// The pool's DialContext must get the values in the caller's context.
func TestContextValues(t *testing.T) {
	t.Parallel()
	type trace struct{}
	server := redistest.Start(t)
	var seen atomic.Bool
	p := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) { // the pool keeps no idle connections
		if ctx.Value(trace{}) == "caller" {
			seen.Store(true)
		}
		return redis.DialContext(ctx, "tcp", server.Addr(), timeouts...)
	}}
	t.Cleanup(func() { p.Close() })
	l, err := open(t, redigostore.New(p)).Mutex(job).Lock(context.WithValue(t.Context(), trace{}, "caller"))
	if err != nil {
		t.Fatal(err)
	}
	drill.Unlock(t, l)
	if !seen.Load() {
		t.Error("no dial had the values of the caller's context")
	}
}
