package history_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/memstore"
)

// plantedBugs are possible bugs of a store, added to the memory store. The checker should find each
// of them with each seed, by one of its rules. Otherwise a check without findings would prove
// nothing.
//   - two holders: sometimes a held name is granted
//   - reader beside writer: the same, for readers only
//   - one permit more: a semaphore has one permit too many
//   - incomplete multi-lock: the last name of a multi-lock is not acquired
//   - release by a stranger: a release or cancel without a lease releases another owner's
//     lease
//   - upgrade beside readers: an impossible upgrade is granted
//   - early end: leases end after half of their TTL
//   - no MinHold: an unlocked name is free at once
//   - old fence: a hand-off sometimes has an older fence
//   - last come, first served: the newest waiter is served first
//   - to the end of the queue: sometimes the first waiter is moved to the end of the
//     queue
//   - false refusal: a free name is sometimes reported as busy
//   - no cancel: a cancelled request stays in the queue
//   - no release: a release sometimes does nothing
var plantedBugs = []struct {
	name  string
	plant func(*bug) driver.Store
	rules []history.Rule // one of these must report the bug
}{
	{"two holders", func(b *bug) driver.Store { return twoHolders{b, anyRequest} }, rules(history.Exclusion)},
	{"reader beside writer", func(b *bug) driver.Store { return twoHolders{b, isReader} }, rules(history.Exclusion)},
	{"one permit more", func(b *bug) driver.Store { return oneMore{b} }, rules(history.Limit)},
	{"incomplete multi-lock", func(b *bug) driver.Store { return incompleteMulti{b} }, rules(history.Exclusion, history.Known, history.Lost)},
	{"release by a stranger", func(b *bug) driver.Store { return stranger{b} }, rules(history.Exclusion, history.Limit)},
	{"upgrade beside readers", func(b *bug) driver.Store { return upgrade{b} }, rules(history.Exclusion)},
	{"early end", func(b *bug) driver.Store { return early{b} }, rules(history.Exclusion)},
	{"no MinHold", func(b *bug) driver.Store { return noReserve{b} }, rules(history.Exclusion)},
	{"old fence", func(b *bug) driver.Store { return oldFence{b} }, rules(history.Fences)},
	{"last come, first served", func(b *bug) driver.Store { return lifo{b} }, rules(history.FIFO)},
	{"to the end of the queue", func(b *bug) driver.Store { return movedBack{b} }, rules(history.FIFO)},
	{"false refusal", func(b *bug) driver.Store { return falseRefusal{b} }, rules(history.Busy)},
	{"no cancel", func(b *bug) driver.Store { return noCancel{b} }, rules(history.Leftover)},
	{"no release", func(b *bug) driver.Store { return noRelease{b} }, rules(history.Leftover, history.Busy)},
}

func rules(r ...history.Rule) []history.Rule { return r }

func TestPlantedBugsAreFound(t *testing.T) {
	for _, p := range plantedBugs {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", p.name, seed), func(t *testing.T) {
				t.Parallel()
				if !found(t, p.plant, p.rules, seed, 1_000) && !found(t, p.plant, p.rules, seed, 10_000) {
					t.Errorf("not found by any of the rules %q", p.rules)
				}
			})
		}
	}
}

// found reports whether this many operations are enough to find a bug.
func found(t *testing.T, plant func(*bug) driver.Store, rules []history.Rule, seed uint64, ops int) (enough bool) {
	synctest.Test(t, func(t *testing.T) {
		store := plant(&bug{Full: driver.Complete(memstore.New()), queued: make(map[string]driver.AcquireRequest)})
		h, _ := history.Record(t.Context(), store, history.Plan{Seed: seed, Ops: ops})
		by := make(map[history.Rule]int)
		for _, v := range history.Check(h) {
			by[v.Rule]++
			enough = enough || slices.Contains(rules, v.Rule)
		}
		t.Logf("of %d: %v", ops, by)
	})
	return enough
}

// A bug is the common part of the planted bugs.
type bug struct {
	*driver.Full

	mu     sync.Mutex
	calls  int
	queued map[string]driver.AcquireRequest // last queued acquire for each name and token
}

// every returns true in every n-th call.
func (b *bug) every(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	return b.calls%n == 0
}

// fence returns a fence larger than all earlier fences.
func (b *bug) fence(r driver.AcquireRequest) uint64 {
	r.Name, r.With, r.Queue = "elsewhere", nil, false
	r.Weight, r.Limit = 1, driver.Unlimited
	a, _ := b.Store.Acquire(context.Background(), r)
	_, _ = b.Store.Release(context.Background(), driver.ReleaseRequest{Name: r.Name, Token: r.Token})
	return a.Fence
}

// last returns a token's last queued acquire for a name.
func (b *bug) last(name, token string) driver.AcquireRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.queued[name+" "+token]
	r.Until = time.Time{}
	return r
}

func anyRequest(driver.AcquireRequest) bool { return true }
func isReader(r driver.AcquireRequest) bool { return r.Limit == driver.Unlimited && !r.Exclusive() }

type twoHolders struct {
	*bug
	applies func(driver.AcquireRequest) bool
}

func (s twoHolders) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	a, err := s.Store.Acquire(ctx, r)
	if err != nil || a.Held || !s.applies(r) || !s.every(50) {
		return a, err
	}
	_ = s.Store.Cancel(ctx, r)
	return driver.AcquireReply{Held: true, Fence: s.fence(r)}, nil
}

type oneMore struct{ *bug }

func (s oneMore) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if !r.Exclusive() && r.Limit < driver.Unlimited {
		r.Limit++
	}
	return s.Store.Acquire(ctx, r)
}

type incompleteMulti struct{ *bug }

func (s incompleteMulti) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if n := len(r.With); n > 0 {
		r.With = r.With[:n-1]
	}
	return s.Store.Acquire(ctx, r)
}

type stranger struct{ *bug }

func (s stranger) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	freed, err := s.Store.Release(ctx, r)
	if err != nil || freed {
		return freed, err
	}
	return s.free(ctx, r.Name)
}

func (s stranger) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	if err := s.Store.Cancel(ctx, r); err != nil {
		return err
	}
	_, err := s.free(ctx, r.Name)
	return err
}

func (s stranger) free(ctx context.Context, name string) (bool, error) {
	state, err := s.Inspect(ctx, name)
	if err != nil || len(state.Holders) == 0 {
		return false, err
	}
	return s.Store.Release(ctx, driver.ReleaseRequest{Name: name, Token: state.Holders[0].Token})
}

type upgrade struct{ *bug }

func (s upgrade) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	a, err := s.Full.Resize(ctx, r)
	if err == nil && !a.Held {
		a = driver.AcquireReply{Held: true, Fence: s.fence(r)}
	}
	return a, err
}

type early struct{ *bug }

func (s early) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	r.TTL /= 2
	return s.Store.Acquire(ctx, r)
}

func (s early) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	holds = slices.Clone(holds)
	for i := range holds {
		holds[i].TTL /= 2
	}
	return s.Store.Extend(ctx, holds)
}

type noReserve struct{ *bug }

func (s noReserve) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	r.Reserve = 0
	return s.Store.Release(ctx, r)
}

type oldFence struct{ *bug }

func (s oldFence) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return s.Store.Watch(ctx, client, busy, func(e driver.Event) {
		if e.Kind == driver.EventGranted && s.every(20) {
			e.Fence -= 5000 // microseconds
		}
		on(e)
	})
}

type lifo struct{ *bug }

func (s lifo) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if r.Queue {
		s.mu.Lock()
		s.queued[r.Name+" "+r.Token] = r
		s.mu.Unlock()
	}
	return s.Store.Acquire(ctx, r)
}

// Release first moves all waiters but the last to the end of the queue.
func (s lifo) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	state, err := s.Inspect(ctx, r.Name)
	if err != nil {
		return false, err
	}
	for _, w := range state.Waiters[:max(len(state.Waiters)-1, 0)] {
		request := s.last(r.Name, w.Token)
		_ = s.Store.Cancel(ctx, request)
		_, _ = s.Store.Acquire(ctx, request)
	}
	return s.Store.Release(ctx, r)
}

type movedBack struct{ *bug }

// Acquire lets a new waiter overtake the first waiter: it moves the first to the end of the queue
// while the new waiter is queued.
func (s movedBack) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if !r.Queue || len(r.With) > 0 {
		return s.Store.Acquire(ctx, r)
	}
	state, err := s.Inspect(ctx, r.Name)
	if err != nil || state.Waiting == 0 || !s.every(20) {
		return lifo(s).Acquire(ctx, r)
	}
	first := s.last(r.Name, state.Waiters[0].Token)
	if first.Token == "" || first.Token == r.Token {
		return lifo(s).Acquire(ctx, r)
	}
	_ = s.Store.Cancel(ctx, first)
	a, err := lifo(s).Acquire(ctx, r)
	_, _ = s.Store.Acquire(ctx, first)
	return a, err
}

type falseRefusal struct{ *bug }

func (s falseRefusal) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if !r.Queue && s.every(50) {
		return driver.AcquireReply{Name: r.Name, Remaining: time.Second}, nil
	}
	return s.Store.Acquire(ctx, r)
}

type noCancel struct{ *bug }

func (noCancel) Cancel(context.Context, driver.AcquireRequest) error { return nil }

type noRelease struct{ *bug }

func (s noRelease) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if s.every(50) {
		return true, nil
	}
	return s.Store.Release(ctx, r)
}
