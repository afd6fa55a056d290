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
	errTaken   = errors.New("the name is held")
	errNotHeld = errors.New("the name was not held")
)

// A baseline sends the minimum for a lock on Redis: SET NX with a TTL, and a script that compares
// and deletes. Its tokens are plain numbers, it does not wait, and it does not check its lease.
type baseline struct {
	lib library
	ttl time.Duration
	seq atomic.Uint64
}

func openBaseline(s endpoint) (peer, error) { return &baseline{lib: s.lib, ttl: s.ttl}, nil }

func (f *baseline) Wire() []string { return []string{"set", "evalsha", "eval"} }

func (f *baseline) Lock(ctx context.Context, name string) (func() error, error) {
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

func (f *baseline) unlock(ctx context.Context, name, token string) error {
	deleted, err := f.lib.unlock(ctx, name, token)
	if err == nil && deleted == 0 {
		return errNotHeld
	}
	return err
}

// A quorumBaseline is a baseline on each quorum node. It sends to all nodes at once and needs a
// majority of successes. It ignores the other replies.
type quorumBaseline struct{ nodes []*baseline }

func openQuorumBaseline(s endpoint) (peer, error) {
	var f quorumBaseline
	for _, lib := range append([]library{s.lib}, s.more...) {
		f.nodes = append(f.nodes, &baseline{lib: lib, ttl: s.ttl})
	}
	return f, nil
}

func (f quorumBaseline) Wire() []string { return f.nodes[0].Wire() }

func (f quorumBaseline) Lock(ctx context.Context, name string) (func() error, error) {
	unlocks := make([]func() error, len(f.nodes))
	locked := make([]chan struct{}, len(f.nodes))
	for i := range locked {
		locked[i] = make(chan struct{})
	}
	err := f.onMajority(func(i int) (err error) {
		defer close(locked[i])
		unlocks[i], err = f.nodes[i].Lock(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		return f.onMajority(func(i int) error {
			if <-locked[i]; unlocks[i] == nil {
				return errNotHeld
			}
			return unlocks[i]()
		})
	}, nil
}

// onMajority calls do for all nodes concurrently. It returns when a majority succeeded or failed.
func (f quorumBaseline) onMajority(do func(i int) error) (err error) {
	done := make(chan error, len(f.nodes))
	for i := range f.nodes {
		go func() { done <- do(i) }()
	}
	for yes, no := 0, 0; yes <= len(f.nodes)/2; {
		if failed := <-done; failed == nil {
			yes++
		} else if no++; no > len(f.nodes)/2 {
			return failed
		}
	}
	return nil
}
