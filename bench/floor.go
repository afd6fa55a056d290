package main

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"sync/atomic"
	"time"
)

//go:embed lua/unlock.lua
var unlockLua string

var (
	errTaken   = errors.New("the name is taken")
	errNotHeld = errors.New("the name was not held")
)

// floor is what a lock on Redis cannot do without: SET NX with a TTL, and to
// compare and delete in a script. Its tokens are only numbers, it does not wait, and it
// knows nothing of its lease afterwards.
type floor struct {
	lib library
	ttl time.Duration
	seq atomic.Uint64
}

func openFloor(s site) (peer, error) { return &floor{lib: s.lib, ttl: s.ttl}, nil }

func (f *floor) Wire() []string { return []string{"set", "evalsha", "eval"} }

func (f *floor) Lock(ctx context.Context, name string) (func() error, error) {
	token := strconv.FormatUint(f.seq.Add(1), 10)
	set, err := f.lib.setNX(ctx, name, token, f.ttl)
	if err != nil {
		return nil, err
	}
	if !set {
		return nil, errTaken
	}
	return func() error { return f.unlock(ctx, name, token) }, nil
}

func (f *floor) unlock(ctx context.Context, name, token string) error {
	deleted, err := f.lib.unlock(ctx, name, token)
	if err == nil && deleted == 0 {
		return errNotHeld
	}
	return err
}
