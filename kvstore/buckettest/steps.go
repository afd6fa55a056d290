package buckettest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/dibslock/dibs/kvstore"
)

// newKey returns an unused key.
func newKey() string { return "buckettest." + rand.Text() }

// get returns a key's value.
func get(ctx context.Context, b kvstore.Bucket, key string) (kvstore.Value, error) {
	v, err := b.Get(ctx, key)
	if err != nil {
		return v, fmt.Errorf("the Get of key %q: %w", key, err)
	}
	return v, nil
}

// write writes a value, and returns it with its revision.
func write(ctx context.Context, b kvstore.Bucket, key string, text []byte, revision uint64) (kvstore.Value, error) {
	if err := b.Swap(ctx, key, text, revision); err != nil {
		return kvstore.Value{}, fmt.Errorf("the Swap of key %q, which has revision %d: %w", key, revision, err)
	}
	v, err := get(ctx, b, key)
	switch {
	case err != nil:
		return v, err
	case v.Revision == 0 || v.Revision == revision:
		return v, fmt.Errorf("key %q has revision %d after a Swap of revision %d, want a new one", key, v.Revision, revision)
	case !bytes.Equal(v.Bytes, text):
		return v, fmt.Errorf("key %q has the value %.100q after a Swap to %.100q", key, v.Bytes, text)
	}
	return v, nil
}

// remove deletes a key with this revision.
func remove(ctx context.Context, b kvstore.Bucket, key string, revision uint64) error {
	if err := b.Swap(ctx, key, nil, revision); err != nil {
		return fmt.Errorf("the Swap that deletes key %q, which has revision %d: %w", key, revision, err)
	}
	return has(ctx, b, key, kvstore.Value{})
}

// has returns an error unless the key has this value.
func has(ctx context.Context, b kvstore.Bucket, key string, want kvstore.Value) error {
	v, err := get(ctx, b, key)
	if err == nil && (v.Revision != want.Revision || !bytes.Equal(v.Bytes, want.Bytes)) {
		err = fmt.Errorf("key %q has revision %d, value %.100q; want %d, %.100q", key, v.Revision, v.Bytes, want.Revision, want.Bytes)
	}
	return err
}

// conflicts returns an error unless a Swap returns ErrConflict, and changes nothing.
func conflicts(ctx context.Context, a, b kvstore.Bucket, key string, text []byte, revision uint64) error {
	before, err := get(ctx, b, key)
	if err != nil {
		return err
	}
	if err := a.Swap(ctx, key, text, revision); !errors.Is(err, kvstore.ErrConflict) {
		return fmt.Errorf("the Swap of revision %d of key %q, which has revision %d: %w, want ErrConflict", revision, key, before.Revision, orNil(err))
	}
	return has(ctx, b, key, before)
}

// orNil returns an error for printing.
func orNil(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

var errNone = errors.New("nil")
