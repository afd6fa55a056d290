package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A frame's fragments are bounded. Those that are not kept are rendered again.
func TestFragmentsOfAFrame(t *testing.T) {
	f := newFrame(&watch.Snapshot{})
	rendered := 0
	for range 2 {
		for i := range maxFragments + 10 {
			text, err := f.fragment(fragmentKey{query: query{filter: filter{glob: fmt.Sprint(i)}}}, func() ([]byte, error) {
				rendered++
				return fmt.Append(nil, i), nil
			})
			if err != nil || string(text.html) != fmt.Sprint(i) {
				t.Fatalf("fragment %d: %v, %v", i, text, err)
			}
		}
	}
	if want := maxFragments + 2*10; rendered != want || len(f.fragments.kept) != maxFragments {
		t.Errorf("%d rendered, want %d; %d kept", rendered, want, len(f.fragments.kept))
	}
}

// The newest snapshot's frame should be kept, whoever comes late.
func TestFrames(t *testing.T) {
	var all frames
	one, two := &watch.Snapshot{Number: 1}, &watch.Snapshot{Number: 2}
	first := all.of(one)
	if all.of(one) != first {
		t.Error("another frame for the same snapshot")
	}
	second := all.of(two)
	if all.of(one).snapshot != one || all.of(two) != second {
		t.Error("a late reader has replaced the frame")
	}
}

// The page may skip snapshots. So an outage's snapshot may have other states than the last shown
// snapshot, and the cycles there are not about its processes.
func TestCyclesOfAnOutage(t *testing.T) {
	var all frames
	cycle := []driver.State{waitedFor("a", "one", "two"), waitedFor("b", "two", "one")}
	before := &watch.Snapshot{Number: 1, States: cycle}
	if got := all.of(before).cycles; len(got) != 1 {
		t.Fatalf("%d cycles, want 1", len(got))
	}
	away := errors.New("no route")
	if got := all.of(&watch.Snapshot{Number: 2, States: cycle, Err: away}).cycles; len(got) != 1 {
		t.Errorf("%d cycles of the same states, want 1", len(got))
	}
	others := []driver.State{waitedFor("c", "three", "four")}
	if got := all.of(&watch.Snapshot{Number: 4, States: others, Err: away}).cycles; len(got) != 0 {
		t.Errorf("%d cycles of other states, want 0", len(got))
	}
}

// waitedFor returns a mutex's state while one process holds it and another waits.
func waitedFor(name, holder, waiter string) driver.State {
	token := func(process string) string { return process + ":1:client0000000001:m-random" }
	return driver.State{
		Name: name, Holding: 1, Waiting: 1,
		Holders: []driver.Holder{{Token: token(holder)}},
		Waiters: []driver.Waiter{{Token: token(waiter)}},
	}
}

// A fragment is kept for others, so an ended request does not spoil it.
func TestFragmentOfAnEndedRequest(t *testing.T) {
	h := New(memstore.New(), Config{}).handler
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text, err := h.rendered(ctx, newFrame(&watch.Snapshot{}), query{view: viewName, name: "free"}, nil)
	if err != nil || !strings.Contains(string(text.html), "is free") {
		t.Errorf("%v, %v", text, err)
	}
}
