package main

import (
	"context"
	_ "embed"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/renew.lua
var renewLua string

var renewScript = redis.NewScript(renewLua)

// A renewBaseline is the minimum for renewing many leases: a set of names, and a goroutine that
// extends 100 names in a script. It uses the same token for all, has no deadlines, and notifies
// nobody of a loss.
type renewBaseline struct {
	rdb *redis.Client
	ttl time.Duration

	mu   sync.Mutex
	held map[string]struct{}
	lost bool // at least one lease
}

const renewToken = "baseline-renew"

func openRenewBaseline(s endpoint) (peer, error) {
	r := &renewBaseline{rdb: s.rdb, ttl: s.ttl, held: make(map[string]struct{})}
	go r.loop()
	return r, nil
}

func (r *renewBaseline) Wire() []string { return []string{"set", "evalsha", "eval"} }

func (r *renewBaseline) Lock(ctx context.Context, name string) (func() error, error) {
	if _, err := r.Keep(ctx, name); err != nil {
		return nil, err
	}
	return func() error { return r.unlock(ctx, name) }, nil
}

// Keep implements renewingPeer.
func (r *renewBaseline) Keep(ctx context.Context, name string) (heldLease, error) {
	set, err := r.rdb.SetNX(ctx, name, renewToken, r.ttl).Result()
	if err != nil {
		return nil, err
	}
	if !set {
		return nil, errTaken
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[name] = struct{}{}
	return r, nil
}

func (r *renewBaseline) unlock(ctx context.Context, name string) error {
	r.mu.Lock()
	delete(r.held, name)
	r.mu.Unlock()
	return unlockScript.Run(ctx, r.rdb, []string{name}, renewToken).Err()
}

// Lost implements heldLease, for all leases together.
func (r *renewBaseline) Lost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

func (r *renewBaseline) loop() {
	for range time.Tick(r.ttl / 3) {
		r.all(context.Background())
	}
}

// all renews all leases, with ten scripts in a round trip.
func (r *renewBaseline) all(ctx context.Context) {
	const keys, scripts = 100, 10
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.held))
	r.mu.Unlock()
	for part := range slices.Chunk(names, keys*scripts) {
		pipe := r.rdb.Pipeline()
		var replies []*redis.Cmd
		for batch := range slices.Chunk(part, keys) {
			replies = append(replies, renewScript.EvalSha(ctx, pipe, batch, renewToken, r.ttl.Milliseconds()))
		}
		if _, err := pipe.Exec(ctx); redis.HasErrorPrefix(err, "NOSCRIPT") {
			renewScript.Load(ctx, r.rdb)
			r.all(ctx)
			return
		}
		r.count(len(part), replies)
	}
}

// count sets r.lost if fewer leases were renewed than were held.
func (r *renewBaseline) count(want int, replies []*redis.Cmd) {
	got := 0
	for _, reply := range replies {
		n, _ := reply.Int() // an error renewed none
		got += n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = r.lost || got < want
}
