// Package natskv is a store for locks in a NATS JetStream key-value bucket. It is the example for
// package kvstore.
package natskv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs/kvstore"
	"github.com/nats-io/nats.go/jetstream"
)

// New returns a store in a bucket, which it creates if there is none.
func New(ctx context.Context, js jetstream.JetStream, name string) (*kvstore.Store, error) {
	b, err := newBucket(ctx, js, name)
	if err != nil {
		return nil, err
	}
	return kvstore.New(b), nil
}

func newBucket(ctx context.Context, js jetstream.JetStream, name string) (*bucket, error) {
	kv, err := openBucket(ctx, js, name)
	if err != nil {
		return nil, err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, err
	}
	if status.TTL() != 0 {
		return nil, fmt.Errorf("the bucket %q deletes values that are %v old, and so locks", name, status.TTL())
	}
	stream, err := js.Stream(ctx, "KV_"+name)
	if err != nil {
		return nil, err
	}
	return &bucket{kv, stream, status.LimitMarkerTTL()}, nil
}

// openBucket keeps an existing bucket's settings.
func openBucket(ctx context.Context, js jetstream.JetStream, name string) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, name)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, LimitMarkerTTL: time.Minute})
	if errors.Is(err, jetstream.ErrBucketExists) { // another client has just created it
		return js.KeyValue(ctx, name)
	}
	return kv, err
}

// A bucket implements kvstore.Bucket.
type bucket struct {
	kv      jetstream.KeyValue
	stream  jetstream.Stream
	markers time.Duration // how long NATS keeps a deleted key's marker; 0: until the next value
}

func (b *bucket) Get(ctx context.Context, key string) (kvstore.Value, error) {
	entry, err := b.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return kvstore.Value{}, nil
	}
	if err != nil {
		return kvstore.Value{}, err
	}
	return kvstore.Value{Bytes: entry.Value(), Revision: entry.Revision()}, nil
}

func (b *bucket) Swap(ctx context.Context, key string, value []byte, revision uint64) (err error) {
	switch {
	case value == nil:
		err = b.kv.Purge(ctx, key, jetstream.LastRevision(revision), jetstream.PurgeTTL(b.markers))
	case revision == 0:
		_, err = b.kv.Create(ctx, key, value)
	default:
		_, err = b.kv.Update(ctx, key, value, revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return kvstore.ErrConflict
	}
	return err
}

// Watch calls on for each update from a NATS watcher. The first is the key's current value, or nil.
func (b *bucket) Watch(ctx context.Context, key string, on func()) error {
	watcher, err := b.kv.Watch(ctx, key)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case _, ok := <-watcher.Updates():
			if !ok {
				return errors.New("the watcher has ended")
			}
			on()
		}
	}
}

func (b *bucket) List(ctx context.Context, prefix string, on func(key string)) error {
	keys, err := b.kv.ListKeys(ctx)
	if err != nil {
		return err
	}
	defer keys.Stop()
	for key := range keys.Keys() {
		if strings.HasPrefix(key, prefix) {
			on(key)
		}
	}
	return ctx.Err()
}

// Now returns the time at which the server leading the stream answered.
func (b *bucket) Now(ctx context.Context) (time.Time, error) {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return info.TimeStamp, nil
}
