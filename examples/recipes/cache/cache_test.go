package cache

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

const (
	processes = 5
	callers   = 50 // in all processes together
)

// A fleet contains several processes with the same cache. Compute calls its function compute.
type fleet struct {
	caches  [processes]*Cache
	queued  chan struct{} // contains a value for each caller that waits for a lock
	compute func(ctx context.Context) (string, error)

	mu       sync.Mutex
	computed int // how often a value was computed
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{queued: make(chan struct{}, callers)}
	addr := redistest.Start(t).Addr()
	for i := range f.caches {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		locks := dibs.New(goredisstore.New(rdb), dibs.Observe(dibs.Hooks{
			Queued: func(context.Context, dibs.Queued) { f.queued <- struct{}{} },
		}))
		t.Cleanup(func() {
			locks.Close()
			rdb.Close()
		})
		f.caches[i] = &Cache{Locks: locks, Redis: rdb, Fresh: time.Minute, Stale: time.Hour, Compute: f.count}
	}
	return f
}

func (f *fleet) count(ctx context.Context, _ string) (string, error) {
	f.mu.Lock()
	f.computed++
	f.mu.Unlock()
	return f.compute(ctx)
}

// An answer is a caller's received value.
type answer struct {
	value string
	err   error
}

// call lets all callers get the same key at the same time. It sends their answers.
func (f *fleet) call(t *testing.T, get func(*Cache, context.Context, string) (string, error)) <-chan answer {
	t.Helper()
	answers := make(chan answer, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			value, err := get(f.caches[i%processes], t.Context(), "prices")
			answers <- answer{value, err}
		})
	}
	t.Cleanup(group.Wait)
	return answers
}

// receive receives n values from a channel.
func receive[T any](ctx context.Context, from <-chan T, n int) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var values []T
	for range n {
		select {
		case v := <-from:
			values = append(values, v)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return values, nil
}

// All callers miss the value. A single caller computes it while the others wait, and all receive
// it.
func TestOneComputes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.compute = func(ctx context.Context) (string, error) {
		_, err := receive(ctx, f.queued, callers-1)
		return "fresh", err
	}
	answers, err := receive(t.Context(), f.call(t, (*Cache).Get), callers)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a != (answer{value: "fresh"}) {
			t.Errorf("a caller received %v", a)
		}
	}
	if f.computed != 1 {
		t.Errorf("computed %d times", f.computed)
	}
}

// While a caller computes a fresh value, the others should receive the stale value.
func TestOthersReceiveTheStaleValue(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	if err := f.caches[0].Redis.Set(t.Context(), "value:prices", "stale", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	finish := make(chan struct{}, 1)
	f.compute = func(ctx context.Context) (string, error) {
		_, err := receive(ctx, finish, 1)
		return "fresh", err
	}
	answers := f.call(t, (*Cache).GetStale)
	others, err := receive(t.Context(), answers, callers-1)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range others {
		if a != (answer{value: "stale"}) {
			t.Errorf("a caller received %v", a)
		}
	}
	finish <- struct{}{}
	last, err := receive(t.Context(), answers, 1)
	if err != nil {
		t.Fatal(err)
	}
	if last[0] != (answer{value: "fresh"}) || f.computed != 1 {
		t.Errorf("the last caller received %v; computed %d times", last[0], f.computed)
	}
}

// A failure belongs to a single caller. The next computes the value.
func TestFailure(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	broken := errors.New("broken")
	f.compute = func(ctx context.Context) (string, error) {
		if f.computed > 1 {
			return "fresh", nil
		}
		_, err := receive(ctx, f.queued, callers-1)
		return "", errors.Join(broken, err)
	}
	answers, err := receive(t.Context(), f.call(t, (*Cache).Get), callers)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, a := range answers {
		switch {
		case errors.Is(a.err, broken):
			failed++
		case a != answer{value: "fresh"}:
			t.Errorf("a caller received %v", a)
		}
	}
	if failed != 1 || f.computed != 2 {
		t.Errorf("%d callers failed, computed %d times", failed, f.computed)
	}
}
