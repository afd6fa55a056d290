package main

import (
	"context"
	"math"

	"github.com/go-redsync/redsync/v4"
)

// redsyncPeer is redsync on a single server or on several. It polls and has no renewal.
type redsyncPeer struct {
	sync    *redsync.Redsync
	options []redsync.Option
}

// openRedsync uses redsync's default delay between two tries: random, 50 to 250 ms. It raises the
// number of tries, which is 32 by default, so no waiter gives up.
func openRedsync(s endpoint) (peer, error) {
	return redsyncPeer{
		sync: redsync.New(s.pools()...),
		options: []redsync.Option{
			redsync.WithExpiry(s.ttl),
			redsync.WithTries(math.MaxInt),
		},
	}, nil
}

// openRedsyncWith returns an opener with other settings, such as a delay of 10 ms for
// shorter waits.
func openRedsyncWith(options ...redsync.Option) opener {
	return func(s endpoint) (peer, error) {
		p, err := openRedsync(s)
		if err != nil {
			return nil, err
		}
		set := p.(redsyncPeer)
		set.options = append(set.options, options...)
		return set, nil
	}
}

func (p redsyncPeer) Wire() []string { return []string{"set", "evalsha", "eval"} }

func (p redsyncPeer) Lock(ctx context.Context, name string) (func() error, error) {
	m := p.sync.NewMutex(name, p.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		_, err := m.UnlockContext(ctx)
		return err
	}, nil
}
