package natskv

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/dibslock/dibs/kvstore"
	"github.com/nats-io/nats.go/jetstream"
)

// NewBucket returns the bucket from which New makes a store.
func NewBucket(ctx context.Context, js jetstream.JetStream, name string) (kvstore.Bucket, error) {
	return newBucket(ctx, js, name)
}

// NewCounting is New, and counts the swaps and the conflicts.
func NewCounting(ctx context.Context, js jetstream.JetStream, name string, swaps, conflicts *atomic.Int64) (*kvstore.Store, error) {
	b, err := newBucket(ctx, js, name)
	if err != nil {
		return nil, err
	}
	return kvstore.New(counting{b, swaps, conflicts}), nil
}

type counting struct {
	kvstore.Bucket
	swaps, conflicts *atomic.Int64
}

func (c counting) Swap(ctx context.Context, key string, value []byte, revision uint64) error {
	err := c.Bucket.Swap(ctx, key, value, revision)
	c.swaps.Add(1)
	if errors.Is(err, kvstore.ErrConflict) {
		c.conflicts.Add(1)
	}
	return err
}

// WriteAndDelete writes a key in a bucket, and deletes it.
func WriteAndDelete(ctx context.Context, js jetstream.JetStream, name string) error {
	b, err := newBucket(ctx, js, name)
	if err != nil {
		return err
	}
	if err := b.Swap(ctx, "key", []byte("value"), 0); err != nil {
		return err
	}
	v, err := b.Get(ctx, "key")
	if err != nil {
		return err
	}
	return b.Swap(ctx, "key", nil, v.Revision)
}
