package main

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/unlock.lua
var unlockLua string

var (
	unlockScript = redis.NewScript(unlockLua)

	errTaken   = errors.New("the name is taken")
	errNotHeld = errors.New("the name was not held")
)

// floor is what a lock on Redis cannot do without: SET NX with a TTL, and to
// compare and delete in a script. Its tokens are only numbers, it does not wait, and it
// knows nothing of its lease afterwards.
type floor struct {
	rdb *redis.Client
	ttl time.Duration
	seq atomic.Uint64
}

func openFloor(s site) (peer, error) { return &floor{rdb: s.rdb, ttl: s.ttl}, nil }

func (f *floor) Name() string   { return "floor" }
func (f *floor) Wire() []string { return []string{"set", "evalsha", "eval"} }

func (f *floor) Lock(ctx context.Context, name string) (func() error, error) {
	token := strconv.FormatUint(f.seq.Add(1), 10)
	set, err := f.rdb.SetNX(ctx, name, token, f.ttl).Result()
	if err != nil {
		return nil, err
	}
	if !set {
		return nil, errTaken
	}
	return func() error { return f.unlock(ctx, name, token) }, nil
}

func (f *floor) unlock(ctx context.Context, name, token string) error {
	deleted, err := unlockScript.Run(ctx, f.rdb, []string{name}, token).Int()
	if err == nil && deleted == 0 {
		return errNotHeld
	}
	return err
}
