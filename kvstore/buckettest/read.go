package buckettest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/kvstore"
)

// values writes values through a handle, and reads them through the other.
func values(ctx context.Context, a, b kvstore.Bucket) error {
	key, other := newKey(), newKey()
	if err := has(ctx, a, key, kvstore.Value{}); err != nil {
		return fmt.Errorf("a key without a value: %w", err)
	}
	kept, err := write(ctx, a, other, []byte("other"), 0)
	if err != nil {
		return err
	}
	var last kvstore.Value
	for _, text := range [][]byte{
		[]byte(`{"text":"<é€😀>\n"}`), []byte(" \t spaces \r\n"), bytes.Repeat([]byte("0123456789abcdef"), 64<<10/16),
	} {
		if last, err = write(ctx, a, key, text, last.Revision); err != nil {
			return err
		}
		if err := has(ctx, b, key, last); err != nil {
			return fmt.Errorf("through the other handle: %w", err)
		}
	}
	if err := remove(ctx, b, key, last.Revision); err != nil {
		return err
	}
	if err := has(ctx, a, key, kvstore.Value{}); err != nil {
		return fmt.Errorf("deleted through the other handle: %w", err)
	}
	return has(ctx, a, other, kept)
}

// keys writes keys that a bucket can confuse or refuse.
func keys(ctx context.Context, a, b kvstore.Bucket) error {
	prefix := newKey()
	names := []string{prefix + ".a", prefix + ".A", prefix + ".a.b", prefix + ".=2F", prefix + ".=2f", prefix + "_a", prefix + "-"}
	names = append(names, prefix+strings.Repeat("x", 517-len(prefix)))
	written := make([]kvstore.Value, len(names))
	for i, key := range names {
		var err error
		if written[i], err = write(ctx, a, key, []byte(key), 0); err != nil {
			return err
		}
	}
	for i, key := range names {
		if err := has(ctx, b, key, written[i]); err != nil {
			return fmt.Errorf("after other keys were written: %w", err)
		}
	}
	return nil
}

// list lists keys with a prefix, beside others.
func list(ctx context.Context, a, b kvstore.Bucket) error {
	prefix := newKey()
	want := []string{prefix + ".a", prefix + ".b.c", prefix + ".d=2F"}
	for _, key := range append([]string{prefix, prefix + "x", "x" + prefix + ".a"}, want...) {
		if _, err := write(ctx, a, key, []byte("value"), 0); err != nil {
			return err
		}
	}
	var listed []string
	if err := b.List(ctx, prefix+".", func(key string) { listed = append(listed, key) }); err != nil {
		return fmt.Errorf("the List of prefix %q: %w", prefix+".", err)
	}
	slices.Sort(listed)
	if listed = slices.Compact(listed); !slices.Equal(listed, want) { // a key may come twice
		return fmt.Errorf("the List of prefix %q: keys %q, want %q", prefix+".", listed, want)
	}
	return nil
}

// clock reads the clock a few times.
func clock(ctx context.Context, a, b kvstore.Bucket) error {
	const readings, pause, coarse = 10, 7 * time.Millisecond, 10 * time.Millisecond
	var times []time.Time
	var began, ended time.Time // after the first call, and before the last call
	for i := range readings {
		ended = time.Now()
		now, err := []kvstore.Bucket{a, b}[i%2].Now(ctx)
		if err != nil {
			return fmt.Errorf("the clock: %w", err)
		}
		times = append(times, now)
		if i == 0 {
			began = time.Now()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	if !slices.ContainsFunc(times, func(at time.Time) bool { return at.Nanosecond()%int(coarse) != 0 }) {
		return fmt.Errorf("each time is a multiple of %v, want milliseconds: %v", coarse, times)
	}
	// A quarter of the time is little enough for a clock being adjusted.
	if passed, least := times[readings-1].Sub(times[0]), ended.Sub(began)/4; passed < least {
		return fmt.Errorf("the clock advanced by %v in %v", passed, ended.Sub(began))
	}
	return nil
}
