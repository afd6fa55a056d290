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

// A pushBaseline is the minimum for a hand-off with a notification. It is a list in Redis, and an
// unlock that grants the lock to the list's head and notifies the head's process. It is not safe: a
// waiter that dies or gives up blocks the queue for a TTL, a lost message blocks it without end.
type pushBaseline struct {
	rdb     *redis.Client
	ttl     int64 // ms
	channel string
	seq     atomic.Uint64
	waiting grants
}

func openPushBaseline(s endpoint) (peer, error) {
	ctx := context.Background()
	g := &pushBaseline{
		rdb:     s.rdb,
		ttl:     s.ttl.Milliseconds(),
		channel: fmt.Sprintf("grant:%d", os.Getpid()),
	}
	sub := s.rdb.Subscribe(ctx, g.channel)
	if _, err := sub.Receive(ctx); err != nil {
		return nil, err
	}
	go g.listen(ctx, sub)
	return g, nil
}

func (g *pushBaseline) Wire() []string { return []string{"evalsha", "eval"} }

// listen wakes the waiters granted the lock.
func (g *pushBaseline) listen(ctx context.Context, sub *redis.PubSub) {
	for {
		m, err := sub.ReceiveMessage(ctx)
		if err != nil {
			return
		}
		g.waiting.wake(m.Payload)
	}
}

func (g *pushBaseline) Lock(ctx context.Context, name string) (func() error, error) {
	token := g.channel + "." + strconv.FormatUint(g.seq.Add(1), 10)
	keys := []string{name, name + ":queue"}
	err := g.waiting.wait(ctx, token, func() (taken bool, err error) {
		n, err := grantAcquire.Run(ctx, g.rdb, keys, token, g.ttl, g.channel).Int()
		return n == 1, err
	})
	if err != nil {
		return nil, err
	}
	return func() error { return grantRelease.Run(ctx, g.rdb, keys, g.ttl).Err() }, nil
}

// grants are a process's waiters by token. It is safe for concurrent use.
type grants struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// wait calls request, and waits for wake if the request was queued.
func (g *grants) wait(ctx context.Context, token string, request func() (taken bool, err error)) error {
	granted := make(chan struct{})
	g.expect(token, granted)
	defer g.forget(token)
	taken, err := request()
	if err != nil || taken {
		return err
	}
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *grants) expect(token string, granted chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		g.waiting = make(map[string]chan struct{})
	}
	g.waiting[token] = granted
}

func (g *grants) forget(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting, token)
}

// wake reports a grant to the waiter with a token.
func (g *grants) wake(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if granted := g.waiting[token]; granted != nil {
		close(granted)
		delete(g.waiting, token)
	}
}
