package kvstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/kvstore"
	"github.com/dibslock/dibs/kvstore/buckettest"
)

func TestBucket(t *testing.T) {
	var mu sync.Mutex
	buckets := map[string]*memory{} // by case
	buckettest.Run(t, func(t *testing.T) kvstore.Bucket {
		mu.Lock()
		defer mu.Unlock()
		if buckets[t.Name()] == nil {
			buckets[t.Name()] = newMemory()
		}
		return buckets[t.Name()]
	})
}

// check runs a case on a bucket, in virtual time.
func check(t *testing.T, c buckettest.Case, b func() kvstore.Bucket) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		bucket := b()
		err = c.Check(t.Context(), bucket, bucket)
		time.Sleep(time.Minute) // the watches end
	})
	return err
}

// Each planted mistake is found by the case for its rule. Without a mistake, no case fails.
func TestPlantedMistakesAreFound(t *testing.T) {
	for _, planted := range []struct {
		mistake string
		found   string // the case's name; "" if it is no mistake
		broken  broken
	}{
		{"none", "", broken{}},
		{"conflicts are wrapped", "", broken{swap: wrapConflicts}},
		{"compares nothing", "one swap wins", broken{swap: compareNothing}},
		{"compares nothing", "other revision", broken{swap: compareNothing}},
		{"reads and then writes", "one swap wins", broken{swap: readAndThenWrite}},
		{"sends each request again", "one swap wins", broken{swap: sendAgain}},
		{"compares unless it deletes", "other revision", broken{swap: deleteAnyRevision}},
		{"has an error of its own for a conflict", "one swap wins", broken{swap: otherError}},
		{"has an error of its own for a conflict", "other revision", broken{swap: otherError}},
		{"begins revisions again", "new revisions", broken{swap: beginAgain}},
		{"trims values", "values", broken{get: trim}},
		{"reads from a replica that lags", "values", broken{get: lag()}},
		{"returns an error for no value", "values", broken{get: noValueIsAnError}},
		{"ignores capitals", "keys", broken{get: ignoreCapitals, swap: swapIgnoringCapitals}},
		{"has no watch", "watch", broken{watch: noWatch}},
		{"has no first call", "watch", broken{watch: noFirstCall}},
		{"has the first call only", "watch", broken{watch: firstCallOnly}},
		{"returns from Watch", "watch", broken{watch: returnAtOnce}},
		{"watches for ever", "watch", broken{watch: watchLonger}},
		{"lists all", "list", broken{list: listAll}},
		{"lists nothing", "list", broken{list: func(context.Context, *memory, string, func(string)) error { return nil }}},
		{"has seconds", "clock", broken{now: func(at time.Time) time.Time { return at.Truncate(time.Second) }}},
		{"has a clock that stands still", "clock", broken{now: func(time.Time) time.Time { return time.Unix(7, 123456789) }}},
	} {
		for _, c := range buckettest.Cases() {
			if planted.found != "" && c.Name != planted.found {
				continue
			}
			t.Run(planted.mistake+"/"+c.Name, func(t *testing.T) {
				b := planted.broken
				err := check(t, c, func() kvstore.Bucket { b.memory = newMemory(); return &b })
				if (err != nil) != (planted.found != "") {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}

// A broken bucket calls a replacement function if it is set.
type broken struct {
	*memory
	get   func(ctx context.Context, m *memory, key string) (kvstore.Value, error)
	swap  func(ctx context.Context, m *memory, key string, value []byte, revision uint64) error
	watch func(ctx context.Context, m *memory, key string, on func()) error
	list  func(ctx context.Context, m *memory, prefix string, on func(string)) error
	now   func(time.Time) time.Time
}

func (b *broken) Get(ctx context.Context, key string) (kvstore.Value, error) {
	if b.get == nil {
		return b.memory.Get(ctx, key)
	}
	return b.get(ctx, b.memory, key)
}

func (b *broken) Swap(ctx context.Context, key string, value []byte, revision uint64) error {
	if b.swap == nil {
		return b.memory.Swap(ctx, key, value, revision)
	}
	return b.swap(ctx, b.memory, key, value, revision)
}

func (b *broken) Watch(ctx context.Context, key string, on func()) error {
	if b.watch == nil {
		return b.memory.Watch(ctx, key, on)
	}
	return b.watch(ctx, b.memory, key, on)
}

func (b *broken) List(ctx context.Context, prefix string, on func(string)) error {
	if b.list == nil {
		return b.memory.List(ctx, prefix, on)
	}
	return b.list(ctx, b.memory, prefix, on)
}

func (b *broken) Now(ctx context.Context) (time.Time, error) {
	at, err := b.memory.Now(ctx)
	if b.now != nil {
		at = b.now(at)
	}
	return at, err
}

func wrapConflicts(ctx context.Context, m *memory, key string, value []byte, revision uint64) error {
	if err := m.Swap(ctx, key, value, revision); err != nil {
		return fmt.Errorf("412 precondition failed: %w", err)
	}
	return nil
}

// overwrite writes a value whatever the key's revision.
func overwrite(ctx context.Context, m *memory, key string, value []byte) error {
	for {
		v, err := m.Get(ctx, key)
		if err != nil {
			return err
		}
		if err := m.Swap(ctx, key, value, v.Revision); !errors.Is(err, kvstore.ErrConflict) {
			return err
		}
	}
}

func compareNothing(ctx context.Context, m *memory, key string, value []byte, _ uint64) error {
	return overwrite(ctx, m, key, value)
}

func readAndThenWrite(ctx context.Context, m *memory, key string, value []byte, revision uint64) error {
	v, err := m.Get(ctx, key)
	if err != nil {
		return err
	}
	if v.Revision != revision {
		return kvstore.ErrConflict
	}
	time.Sleep(time.Millisecond) // the duration of a round trip
	return overwrite(ctx, m, key, value)
}

func sendAgain(ctx context.Context, m *memory, key string, value []byte, revision uint64) error {
	if err := m.Swap(ctx, key, value, revision); err != nil {
		return err
	}
	return m.Swap(ctx, key, value, revision)
}

func deleteAnyRevision(ctx context.Context, m *memory, key string, value []byte, revision uint64) error {
	if value == nil {
		return overwrite(ctx, m, key, nil)
	}
	return m.Swap(ctx, key, value, revision)
}

func otherError(ctx context.Context, m *memory, key string, value []byte, revision uint64) error {
	if err := m.Swap(ctx, key, value, revision); err != nil {
		return errors.New("412 precondition failed")
	}
	return nil
}

func beginAgain(ctx context.Context, m *memory, key string, value []byte, revision uint64) error {
	m.mu.Lock()
	m.revision = m.values[key].Revision // the case does not write at the same time
	m.mu.Unlock()
	return m.Swap(ctx, key, value, revision)
}

func trim(ctx context.Context, m *memory, key string) (kvstore.Value, error) {
	v, err := m.Get(ctx, key)
	v.Bytes = bytes.TrimSpace(v.Bytes)
	return v, err
}

// lag returns a Get that returns old values for a while.
func lag() func(context.Context, *memory, string) (kvstore.Value, error) {
	last := map[string]kvstore.Value{}
	read := map[string]time.Time{}
	return func(ctx context.Context, m *memory, key string) (kvstore.Value, error) {
		if at, ok := read[key]; ok && time.Since(at) < 30*time.Millisecond {
			return last[key], nil
		}
		v, err := m.Get(ctx, key)
		last[key], read[key] = v, time.Now()
		return v, err
	}
}

func noValueIsAnError(ctx context.Context, m *memory, key string) (kvstore.Value, error) {
	v, err := m.Get(ctx, key)
	if err == nil && v.Revision == 0 {
		err = errors.New("key not found")
	}
	return v, err
}

func ignoreCapitals(ctx context.Context, m *memory, key string) (kvstore.Value, error) {
	return m.Get(ctx, strings.ToLower(key))
}

func swapIgnoringCapitals(ctx context.Context, m *memory, key string, value []byte, revision uint64) error {
	return m.Swap(ctx, strings.ToLower(key), value, revision)
}

func noWatch(ctx context.Context, _ *memory, _ string, _ func()) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func noFirstCall(ctx context.Context, m *memory, key string, on func()) error {
	first := true
	return m.Watch(ctx, key, func() {
		if !first {
			on()
		}
		first = false
	})
}

func firstCallOnly(ctx context.Context, m *memory, key string, on func()) error {
	on()
	return noWatch(ctx, m, key, on)
}

func returnAtOnce(context.Context, *memory, string, func()) error { return nil }

func watchLonger(ctx context.Context, m *memory, key string, on func()) error {
	err := m.Watch(ctx, key, on)
	time.Sleep(30 * time.Second)
	return err
}

func listAll(ctx context.Context, m *memory, _ string, on func(string)) error {
	return m.List(ctx, "", on)
}
