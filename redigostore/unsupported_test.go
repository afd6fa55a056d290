package redigostore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redigostore"
	"github.com/gomodule/redigo/redis"
)

// With arguments that the constructors do not support, each call returns an error and
// does not panic.
func TestUnsupportedPools(t *testing.T) {
	t.Parallel()
	nodes := []string{redistest.StartClusterNode(t).Addr()}
	none := func(string) *redis.Pool { return nil }
	for name, c := range map[string]struct {
		store driver.Store
		text  string
	}{
		"nil":               {redigostore.New(nil), "nil"},
		"nil, replicas":     {redigostore.New(nil, redigostore.WithReplicas(1, time.Second)), "nil"},
		"no function":       {redigostore.NewCluster(nodes, nil), "nil"},
		"no nodes":          {redigostore.NewCluster(nil, none), "no node"},
		"no pool":           {redigostore.NewCluster(nodes, none), nodes[0]},
		"no pool, replicas": {redigostore.NewCluster(nodes, none, redigostore.WithReplicas(1, time.Second)), nodes[0]},
	} {
		t.Run(name, func(t *testing.T) { drill.WantInvalid(t, c.store, c.text) })
	}
}

// DialContext of the pool gets the values of the caller's context.
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
