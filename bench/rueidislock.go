package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockPeer is rueidislock for a single server: a majority of a single key, and no loop
// tracking, as recommended. It wakes waiters through client-side caching and renews at half the
// TTL. It has its own client, with a single connection for batched commands.
type rueidislockPeer struct{ locker rueidislock.Locker }

func openRueidislock(s endpoint) (peer, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{s.addr}},
		KeyValidity:    s.ttl,
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return rueidislockPeer{locker}, nil
}

func (p rueidislockPeer) Wire() []string { return []string{"evalsha", "eval"} }

func (p rueidislockPeer) Lock(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := p.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func() error {
		cancel() // returns after the key is deleted
		return nil
	}, nil
}

// Keep implements renewingPeer. It tries and does not wait. A try ends after 20 ms: if a try ends
// this way on a free name, its waiter is never woken.
func (p rueidislockPeer) Keep(ctx context.Context, name string) (heldLease, error) {
	const tries = 50
	var err error
	for range tries {
		var lease context.Context
		if lease, _, err = p.locker.TryWithContext(ctx, name); err == nil {
			return rueidislockLease{lease}, nil
		}
	}
	return nil, err
}

type rueidislockLease struct{ ctx context.Context }

func (l rueidislockLease) Lost() bool { return l.ctx.Err() != nil }
