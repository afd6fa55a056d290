package kvstore_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/kvstore"
)

// A memory is a bucket in memory.
type memory struct {
	mu       sync.Mutex
	revision uint64
	values   map[string]kvstore.Value
	changed  map[string]chan struct{} // closed at the key's next change
	behind   time.Duration            // by which its clock was set back
}

// validKey matches the keys that a Bucket must accept.
var validKey = regexp.MustCompile(`^[A-Za-z0-9_=-]([A-Za-z0-9._=-]*[A-Za-z0-9_=-])?$`)

func newMemory() *memory {
	return &memory{values: map[string]kvstore.Value{}, changed: map[string]chan struct{}{}}
}

func (m *memory) Get(ctx context.Context, key string) (kvstore.Value, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !validKey.MatchString(key) {
		return kvstore.Value{}, fmt.Errorf("key %q", key)
	}
	return m.values[key], context.Cause(ctx)
}

func (m *memory) Swap(ctx context.Context, key string, value []byte, revision uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case m.values[key].Revision != revision:
		return kvstore.ErrConflict
	case value == nil:
		delete(m.values, key)
	default:
		m.revision++
		m.values[key] = kvstore.Value{Bytes: slices.Clone(value), Revision: m.revision}
	}
	if changed := m.changed[key]; changed != nil {
		close(changed)
		delete(m.changed, key)
	}
	return nil
}

func (m *memory) Watch(ctx context.Context, key string, on func()) error {
	for {
		m.mu.Lock()
		changed := m.changed[key]
		if changed == nil {
			changed = make(chan struct{})
			m.changed[key] = changed
		}
		m.mu.Unlock()
		on()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func (m *memory) List(ctx context.Context, prefix string, on func(key string)) error {
	m.mu.Lock()
	keys := slices.Collect(maps.Keys(m.values))
	m.mu.Unlock()
	for _, key := range keys {
		if strings.HasPrefix(key, prefix) {
			on(key)
		}
	}
	return context.Cause(ctx)
}

func (m *memory) Now(ctx context.Context) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(-m.behind), context.Cause(ctx)
}

// setBack sets the clock back.
func (m *memory) setBack(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.behind += d
}

// mustSwap writes a key's first value.
func (m *memory) mustSwap(t *testing.T, key string, value []byte) {
	t.Helper()
	if err := m.Swap(t.Context(), key, value, 0); err != nil {
		t.Fatal(err)
	}
}

// keys returns the keys with a value.
func (m *memory) keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.values))
}
