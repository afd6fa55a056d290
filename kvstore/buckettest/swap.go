package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dibslock/dibs/kvstore"
)

const (
	rounds   = 20
	swappers = 8 // swapping at the same time
)

// oneWins repeatedly lets many swaps of the same revision race. The first round creates the key.
func oneWins(ctx context.Context, a, b kvstore.Bucket) error {
	key := newKey()
	var last kvstore.Value
	for round := range rounds {
		next, err := race(ctx, []kvstore.Bucket{a, b}, key, last.Revision)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		last = next
	}
	return nil
}

// race swaps a single revision of a key several times at once, and returns the winner's value.
func race(ctx context.Context, handles []kvstore.Bucket, key string, revision uint64) (v kvstore.Value, err error) {
	errs := make([]error, swappers)
	text := func(i int) []byte { return fmt.Appendf(nil, "from %d on revision %d", i, revision) }
	begin := make(chan struct{})
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() {
			<-begin
			errs[i] = handles[i%len(handles)].Swap(ctx, key, text(i), revision)
		})
	}
	close(begin)
	running.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			return v, fmt.Errorf("two swaps of revision %d returned nil", revision)
		case err == nil:
			winner = i
		case !errors.Is(err, kvstore.ErrConflict):
			return v, fmt.Errorf("a Swap of revision %d returned %w, want nil or ErrConflict", revision, err)
		}
	}
	if winner < 0 {
		return v, fmt.Errorf("each Swap of revision %d returned ErrConflict", revision)
	}
	for _, handle := range handles {
		if v, err = get(ctx, handle, key); err != nil {
			return v, err
		}
		if !bytes.Equal(v.Bytes, text(winner)) || v.Revision == 0 || v.Revision == revision {
			return v, fmt.Errorf("the key has revision %d, value %.100q; want a new revision and %q, which has won", v.Revision, v.Bytes, text(winner))
		}
	}
	return v, nil
}

// otherRevision swaps with a key's past and future revisions, and with another key's revision.
func otherRevision(ctx context.Context, a, b kvstore.Bucket) error {
	key := newKey()
	first, err := write(ctx, a, key, []byte("first"), 0)
	if err != nil {
		return err
	}
	second, err := write(ctx, b, key, []byte("second"), first.Revision)
	if err != nil {
		return err
	}
	for _, revision := range []uint64{0, first.Revision, second.Revision + 1} {
		if err := conflicts(ctx, a, b, key, []byte("third"), revision); err != nil {
			return err
		}
		if revision == 0 {
			continue // nobody deletes a key without a value
		}
		if err := conflicts(ctx, a, b, key, nil, revision); err != nil {
			return fmt.Errorf("to delete it: %w", err)
		}
	}
	missing := newKey()
	if err := conflicts(ctx, a, b, missing, []byte("first"), second.Revision); err != nil {
		return fmt.Errorf("without a value: %w", err)
	}
	return remove(ctx, b, key, second.Revision)
}

// newRevisions deletes a key and creates it again. A late Swap of each earlier revision should
// fail.
func newRevisions(ctx context.Context, a, b kvstore.Bucket) error {
	key := newKey()
	var earlier []uint64
	for life := range 4 {
		v, err := write(ctx, a, key, fmt.Appendf(nil, "life %d", life), 0)
		if err != nil {
			return err
		}
		for _, revision := range earlier {
			if revision == v.Revision {
				return fmt.Errorf("key %q has revision %d again, after it was deleted", key, revision)
			}
			if err := conflicts(ctx, a, b, key, nil, revision); err != nil {
				return err
			}
		}
		next, err := write(ctx, b, key, v.Bytes, v.Revision) // the same value is also a change
		if err != nil {
			return err
		}
		earlier = append(earlier, v.Revision, next.Revision)
		if err := remove(ctx, b, key, next.Revision); err != nil {
			return err
		}
	}
	return nil
}
