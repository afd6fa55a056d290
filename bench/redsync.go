package main

import (
	"context"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// redsyncPeer is redsync on one server. It polls, and has no renewal.
type redsyncPeer struct {
	sync    *redsync.Redsync
	options []redsync.Option
}

// openRedsync leaves the delay between two tries as it is: 50 to 250 ms by chance.
// By default it gives up after 32 of them; here nobody gives up.
func openRedsync(s site) (peer, error) {
	return redsyncPeer{
		sync: redsync.New(s.lib.pool()),
		options: []redsync.Option{
			redsync.WithExpiry(s.ttl),
			redsync.WithTries(math.MaxInt),
		},
	}, nil
}

// openRedsyncEager tries every 10 ms, as somebody does who wants short waits.
func openRedsyncEager(s site) (peer, error) {
	p, err := openRedsync(s)
	if err != nil {
		return nil, err
	}
	eager := p.(redsyncPeer)
	eager.options = append(eager.options, redsync.WithRetryDelay(10*time.Millisecond))
	return eager, nil
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
