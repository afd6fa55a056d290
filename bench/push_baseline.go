package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/grant_acquire.lua
var grantAcquireLua string

//go:embed lua/grant_release.lua
var grantReleaseLua string

var (
	grantAcquire = redis.NewScript(grantAcquireLua)
	grantRelease = redis.NewScript(grantReleaseLua)
)

// A pushBaseline is the least that a hand-off with a notification needs. It is a list in
// Redis, and an unlock that grants the lock to the list's head and notifies the process of
// the head. It is not safe: a waiter that dies or gives up blocks the queue for a TTL, a
// lost message blocks it without end.
type pushBaseline struct {
	rdb     *redis.Client
	ttl     int64 // ms
	channel string
	seq     atomic.Uint64

	mu      sync.Mutex
	waiting map[string]chan struct{} // by token
}

func openPushBaseline(s endpoint) (peer, error) {
	ctx := context.Background()
	g := &pushBaseline{
		rdb:     s.rdb,
		ttl:     s.ttl.Milliseconds(),
		channel: fmt.Sprintf("grant:%d", os.Getpid()),
		waiting: make(map[string]chan struct{}),
	}
	sub := s.rdb.Subscribe(ctx, g.channel)
	if _, err := sub.Receive(ctx); err != nil {
		return nil, err
	}
	go g.listen(ctx, sub)
	return g, nil
}

func (g *pushBaseline) Wire() []string { return []string{"evalsha", "eval"} }

// listen wakes the waiters that were granted the lock.
func (g *pushBaseline) listen(ctx context.Context, sub *redis.PubSub) {
	for {
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			return
		}
		g.mu.Lock()
		woken := g.waiting[m.Payload]
		delete(g.waiting, m.Payload)
		g.mu.Unlock()
		if woken != nil {
			close(woken)
		}
	}
}

func (g *pushBaseline) Lock(ctx context.Context, name string) (func() error, error) {
	token := g.channel + "." + strconv.FormatUint(g.seq.Add(1), 10)
	keys := []string{name, name + ":queue"}
	granted := make(chan struct{})
	g.expect(token, granted)
	taken, err := grantAcquire.Run(ctx, g.rdb, keys, token, g.ttl, g.channel).Int()
	if err != nil || taken == 1 {
		g.forget(token)
	}
	if err != nil {
		return nil, err
	}
	if taken == 0 {
		select {
		case <-granted:
		case <-ctx.Done():
			g.forget(token)
			return nil, ctx.Err()
		}
	}
	return func() error { return grantRelease.Run(ctx, g.rdb, keys, g.ttl).Err() }, nil
}

func (g *pushBaseline) expect(token string, granted chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting[token] = granted
}

func (g *pushBaseline) forget(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting, token)
}
