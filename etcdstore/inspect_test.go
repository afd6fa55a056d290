package etcdstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Fences are no times in etcd, so a state should say since when a lease is held.
func TestHeldSince(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	locks := dibs.New(s, dibs.TTL(10*time.Second), dibs.Timeout(10*time.Second))
	t.Cleanup(func() { _ = locks.Close() })
	inspect := func() driver.State {
		state, err := s.Inspect(t.Context(), "job")
		must(t, err)
		if len(state.Holders) != 1 {
			t.Fatalf("have %+v", state)
		}
		return state
	}
	since := func() time.Time { return inspect().Holders[0].Since }
	begin := time.Now().Truncate(time.Millisecond)
	first := lock(t, locks, "job")
	if have := since(); have.Before(begin) || have.After(time.Now()) {
		t.Errorf("have %v, want the time of the acquire, from %v", have, begin)
	}
	next := make(chan *dibs.Lease)
	go func() { next <- lock(t, locks, "job") }()
	for inspect().Waiting == 0 {
	}
	begin = time.Now().Truncate(time.Millisecond)
	unlock(t, first)
	second := <-next
	defer unlock(t, second)
	must(t, second.Extend(t.Context(), 10*time.Second))
	if have := since(); have.Before(begin) {
		t.Errorf("have %v, want the time of the hand-off, from %v", have, begin)
	}
}
