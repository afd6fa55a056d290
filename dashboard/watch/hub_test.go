package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// counting is a store that counts its scans, and fails while away is set.
type counting struct {
	*driver.Full
	lists atomic.Int64
	away  atomic.Bool
}

func (s *counting) List(ctx context.Context, glob string) ([]string, error) {
	s.lists.Add(1)
	if s.away.Load() {
		return nil, errors.New("away")
	}
	return s.Full.List(ctx, glob)
}

func newHub(t *testing.T, names ...string) (*Hub, *counting) {
	s := &counting{Full: driver.Complete(memstore.New())}
	hold(t, s, names...)
	return NewHub(Poller{s, time.Second}, "*", time.Second, nil), s
}

// Twenty followers should cost as much as a single follower, and none should cost nothing.
func TestOnePollerForAllFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, s := newHub(t, "a")
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		var seen atomic.Int64
		for range 20 {
			all.Go(func() {
				for range hub.Follow(ctx) {
					seen.Add(1)
				}
			})
		}
		all.Wait()
		if lists := s.lists.Load(); lists != 10 || seen.Load() != 200 {
			t.Errorf("%d polls and %d snapshots in 9.5s with 20 followers, want 10 and 200", lists, seen.Load())
		}
		time.Sleep(time.Hour)
		if lists := s.lists.Load(); lists != 10 {
			t.Errorf("%d polls without a follower", lists-10)
		}
	})
}

// Concurrent calls to Latest must share a poll, and no poll begins sooner than every after the
// last.
func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, s := newHub(t, "a")
		for i := range 100 {
			snapshot, err := hub.Latest(t.Context())
			if err != nil || len(snapshot.States) != 1 || time.Since(snapshot.At) > time.Second {
				t.Fatalf("call %d: %+v, %v", i, snapshot, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if lists := s.lists.Load(); lists > 11 {
			t.Errorf("%d polls in 10s, want at most 11", lists)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		if _, err := hub.Latest(ctx); err == nil || err.Error() != "gone" {
			t.Errorf("the context has ended: %v", err)
		}
	})
}

// A slow follower gets the newest snapshot, and delays nobody.
func TestFollowerSkipsSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, _ := newHub(t, "a")
		var numbers []uint64
		for s := range hub.Follow(t.Context()) {
			if numbers = append(numbers, s.Number); len(numbers) == 3 {
				break
			}
			time.Sleep(5400 * time.Millisecond)
		}
		if have := fmt.Sprint(numbers); have != "[1 6 11]" {
			t.Errorf("snapshots %s", have)
		}
	})
}

// While the store does not answer, the last states stay, with the error.
func TestSnapshotOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, s := newHub(t, "a")
		n := 0
		for snapshot := range hub.Follow(t.Context()) {
			n++
			if len(snapshot.States) != 1 || (snapshot.Err != nil) != (n == 2) {
				t.Fatalf("snapshot %d: %d states, %v", n, len(snapshot.States), snapshot.Err)
			}
			if s.away.Store(n == 1); n == 3 {
				break
			}
		}
	})
}

func eventsOf(changes []view.Change) string {
	var events []string
	for _, c := range changes {
		events = append(events, c.Event)
	}
	return strings.Join(events, " ")
}

func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub, s := newHub(t, "other")
		locks := dibs.New(s)
		defer locks.Close()
		var lease *dibs.Lease
		steps := []func(){
			func() { lease, _ = locks.Mutex("a").TryLock(t.Context()) },
			func() { lease.Unlock() },
			func() { lease, _ = locks.Mutex("a").TryLock(t.Context()) },
			func() {},
		}
		n := 0
		for range hub.Follow(t.Context()) {
			if n == len(steps) {
				break
			}
			steps[n]()
			n++
		}
		if have := eventsOf(hub.Recent("a")); have != "acquired released acquired" {
			t.Errorf("recent changes of a: %s", have)
		}
		if have := eventsOf(hub.Recent("other")); have != "held" {
			t.Errorf("recent changes of another name: %s", have)
		}
		// After a long time without a follower, nobody can say when something happened.
		time.Sleep(time.Hour)
		snapshot, err := hub.Latest(t.Context())
		if err != nil || snapshot.Began != snapshot.At {
			t.Errorf("changes are seen since %v, and the poll was at %v, %v", snapshot.Began, snapshot.At, err)
		}
		if have := eventsOf(hub.Recent("a")); have != "held" {
			t.Errorf("recent changes after an hour without a poll: %s", have)
		}
	})
}

func TestKeptChangesAreBounded(t *testing.T) {
	c := changes{gap: time.Hour}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 2 * maxKept / 25 {
		at = at.Add(time.Second)
		states := make([]driver.State, 25)
		for j := range states {
			states[j] = heldBy(fmt.Sprint("token", i, j), time.Minute)
			states[j].Name = fmt.Sprint("n", j)
		}
		c.add(Poll{Began: at, Ended: at, States: states})
	}
	if len(c.kept) > maxKept+maxKept/2+50 {
		t.Errorf("%d changes are kept", len(c.kept))
	}
	ofName := func(one view.Change) bool { return one.Name == "n7" }
	if n := len(selected(c.kept, maxOfName, ofName)); n != maxOfName {
		t.Errorf("%d changes of a name, want %d", n, maxOfName)
	}
}

// The end of a revoked lease must not be an event, however many others there are. A poll must
// search the revocations since the poll before, but not the changes.
func TestManyChangesAndRevocations(t *testing.T) {
	const names = 2000
	c := changes{gap: time.Hour}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	poll := func(step int) (found []view.Change) {
		at = at.Add(time.Second)
		states := make([]driver.State, names)
		for i := range states {
			states[i] = heldBy(fmt.Sprint("token", step), time.Minute)
			states[i].Name = fmt.Sprintf("n%04d", i)
		}
		found, _ = c.add(Poll{Began: at, Ended: at, States: states})
		return found
	}
	released := func(found []view.Change) string {
		found = slices.Clone(found)
		return eventsOf(slices.DeleteFunc(found, func(one view.Change) bool { return one.Name != "n0007" }))
	}
	revoke := func() {
		s := view.StateOf(heldBy("token1", time.Minute), at)
		c.revoked(view.Change{Time: at.Add(time.Millisecond), Name: "n0007", Holder: &s.Holders[0]})
	}
	poll(1)
	revoke()
	if have := released(poll(2)); have != "acquired" {
		t.Errorf("after a revocation: %s", have)
	}
	poll(1)
	if have := released(poll(2)); have != "released acquired" {
		t.Errorf("the same token later: %s", have)
	}
	for range maxRevocations {
		revoke()
	}
	if have := len(c.revokedSince(at.Add(time.Second))); have != 0 {
		t.Errorf("%d revocations after all of them", have)
	}
}
