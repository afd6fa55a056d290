package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A measured is a store that counts the inspected names. Each inspection takes a time.
type measured struct {
	*driver.Full
	inspected []string
	lists     int
	took      time.Duration
}

func (s *measured) List(ctx context.Context, glob string) ([]string, error) {
	s.lists++
	return s.Full.List(ctx, glob)
}

func (s *measured) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	time.Sleep(time.Duration(len(names)) * s.took)
	s.inspected = append(s.inspected, names...)
	return s.Full.InspectAll(ctx, names)
}

// crowd holds manyNames+1000 names in a store, and waits for one.
func crowd(t *testing.T) *measured {
	t.Helper()
	s := &measured{Full: driver.Complete(memstore.New()), took: 10 * time.Microsecond}
	for i := range manyNames + 1000 {
		acquire(t, s, fmt.Sprintf("n%05d", i), "holder")
	}
	acquire(t, s, "n00500", "waiter")
	return s
}

func acquire(t *testing.T, s driver.Store, name, token string) {
	t.Helper()
	r := driver.AcquireRequest{
		Name: name, Token: token, Client: "client", Weight: 1, Limit: 1, TTL: time.Hour, Queue: true, Until: time.Now().Add(time.Hour),
	}
	if _, err := s.Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// With many names, a poll should read names with waiters and names on display. The others should be
// counted, which takes a fiftieth of the time at most.
func TestSparsePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := crowd(t)
		shown := []string{"n00001", "free"}
		n := 0
		var counted time.Time
		for p := range (Poller{s, time.Second}).Sparse(t.Context(), "*", time.Second, func() []string { return slices.Clone(shown) }) {
			if p.Err != nil || p.Rest == nil {
				t.Fatal(p.Err, p.Rest)
			}
			have := namesOf(p.States)
			switch n++; n {
			case 1:
				counted = p.Rest.Taken
				if len(p.Rest.Names) != manyNames+1000 || !slices.Equal(have, []string{"n00001", "n00500"}) {
					t.Fatalf("%d names are counted, %q are read", len(p.Rest.Names), have)
				}
				s.inspected, s.lists = nil, 0
				release(t, s, "n00001")
				release(t, s, "n00002")
				acquire(t, s, "free", "holder")
				acquire(t, s, "new", "holder")
				renewWait(t, s)
			case 2:
				if !slices.Equal(have, []string{"free", "n00500"}) || len(s.inspected) != 3 || s.lists != 0 {
					t.Fatalf("%q are read of %q, and %d scans", have, s.inspected, s.lists)
				}
				// n00001 is gone, and free is there; the others are as they were counted.
				if len(p.Rest.Names) != manyNames+1000 || !slices.IsSortedFunc(p.Rest.Names, byName) || p.Rest.Names[0].Name != "free" || p.Rest.Names[1].Name != "n00000" || p.Rest.Names[2].Name != "n00002" {
					t.Fatalf("%d names: %+v", len(p.Rest.Names), p.Rest.Names[:3])
				}
			}
			if !p.Rest.Taken.Equal(counted) {
				if passed := p.Rest.Taken.Sub(counted); passed < 49*50*time.Millisecond {
					t.Errorf("the names are counted again after %v", passed)
				}
				if !slices.ContainsFunc(p.Rest.Names, func(n view.Summary) bool { return n.Name == "new" }) || len(p.Rest.Names) != manyNames+1000 {
					t.Errorf("%d names", len(p.Rest.Names))
				}
				break
			}
		}
	})
}

func byName(x, y view.Summary) int { return strings.Compare(x.Name, y.Name) }

func release(t *testing.T, s driver.Store, name string) {
	t.Helper()
	if ok, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: "holder"}); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// renewWait is the waiter's heartbeat.
func renewWait(t *testing.T, s driver.Store) { acquire(t, s, "n00500", "waiter") }

// When names come on display and go, they do not count as acquired or released.
func TestEventsOfSparsePolls(t *testing.T) {
	at := time.Now()
	var w Watcher
	poll := func(read []string, states ...driver.State) string {
		at = at.Add(time.Second)
		changes := w.Update(Poll{Began: at, Ended: at, States: states, Rest: &Rest{Read: read}})
		return eventsOf(changes)
	}
	a, b := heldBy("token-a", time.Minute), heldBy("token-b", time.Minute)
	a.Name, b.Name = "a", "b"
	for i, step := range []struct {
		read   []string
		states []driver.State
		want   string
	}{
		{[]string{"a"}, []driver.State{a}, "held"},
		{[]string{"a", "b"}, []driver.State{a, b}, "held"},
		{[]string{"b"}, []driver.State{b}, ""},
		{[]string{"a", "b"}, []driver.State{a}, "held released"},
		{[]string{"a", "b"}, []driver.State{b}, "released acquired"},
	} {
		if have := poll(step.read, step.states...); have != step.want {
			t.Errorf("step %d: want %q, have %q", i, step.want, have)
		}
	}
}

// The names on a page must be read until they are no longer shown.
func TestDisplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub(Poller{crowd(t), time.Second}, "*", time.Second, nil)
		for s := range hub.Follow(t.Context()) {
			if _, read := s.State("n00007"); read != (s.Number > 1 && s.Number <= 2+displayedPolls) {
				t.Errorf("poll %d: the name was read: %v", s.Number, read)
			}
			if s.Number == 1 {
				hub.Display(s, []string{"n00007"})
			}
			if s.Number == 8 {
				break
			}
		}
	})
}
