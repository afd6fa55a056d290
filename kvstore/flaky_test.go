package kvstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dibslock/dibs/kvstore"
)

// A flaky bucket reports false conflicts, loses replies, and ends watches.
type flaky struct {
	*memory
	mu     sync.Mutex
	random *rand.Rand
}

func newFlaky(seed uint64) *flaky {
	return &flaky{memory: newMemory(), random: rand.New(rand.NewPCG(seed, seed))}
}

func (f *flaky) oneOf(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

var errReply = errors.New("the reply was lost")

func (f *flaky) Swap(ctx context.Context, key string, value []byte, revision uint64) error {
	switch f.oneOf(12) {
	case 0: // another client was first, without a relevant change
		return kvstore.ErrConflict
	case 1:
		if err := f.memory.Swap(ctx, key, value, revision); err != nil {
			return err
		}
		return errReply
	}
	return f.memory.Swap(ctx, key, value, revision)
}

func (f *flaky) Watch(ctx context.Context, key string, on func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first := true // storetest requires that a client is connected first
	return f.memory.Watch(ctx, key, func() {
		on()
		if !first && f.oneOf(6) == 0 {
			cancel(errors.New("the connection was lost"))
		}
		first = false
	})
}

// A delaying bucket holds a lock's first Swap, so its client sees neither success nor failure.
type delaying struct {
	*memory
	delayed func() error
}

func (d *delaying) Swap(ctx context.Context, key string, value []byte, revision uint64) error {
	if d.delayed == nil {
		d.delayed = func() error { return d.memory.Swap(context.WithoutCancel(ctx), key, value, revision) }
		return errReply
	}
	return d.memory.Swap(ctx, key, value, revision)
}

// A slow bucket takes a while for each request.
type slow struct{ *memory }

const latency = 250 * time.Millisecond

func (s *slow) Get(ctx context.Context, key string) (kvstore.Value, error) {
	time.Sleep(latency)
	return s.memory.Get(ctx, key)
}

func (s *slow) Swap(ctx context.Context, key string, value []byte, revision uint64) error {
	time.Sleep(latency)
	return s.memory.Swap(ctx, key, value, revision)
}

// A conflicting bucket reports some conflicts.
type conflicting struct {
	*memory
	conflicts int
}

func (c *conflicting) Swap(ctx context.Context, key string, value []byte, revision uint64) error {
	if c.conflicts > 0 {
		c.conflicts--
		return kvstore.ErrConflict
	}
	return c.memory.Swap(ctx, key, value, revision)
}
