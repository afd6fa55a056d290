package zkstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// holderAndWaiter returns a holder's reply, and the events of a waiter behind it, each in its process.
func holderAndWaiter(t *testing.T, stores []*zkstore.Store) (held driver.AcquireReply, events chan driver.Event) {
	t.Helper()
	holder, waiter := request("a", "holder", 5*time.Second), request("a", "waiter", 5*time.Second)
	held = wantHeld(t, stores[0], holder)
	events, _ = watch(t, stores[1], waiter.Client)
	wantBusy(t, stores[1], waiter)
	return held, events
}

// A release should be the grant: its change is the fence.
func TestGrantByRelease(t *testing.T) {
	stores := processes(t, 2)
	held, events := holderAndWaiter(t, stores)
	release(t, stores[0], "a", "holder")
	if e := wantEvent(t, events, driver.EventGranted); e.Fence <= held.Fence {
		t.Errorf("the fence %d after %d", e.Fence, held.Fence)
	}
}

// A holder's entry that moves should not let the waiter in.
func TestMoveIsNoGrant(t *testing.T) {
	const longest = 5 * time.Minute // more than a session's
	stores := processes(t, 2)
	held, events := holderAndWaiter(t, stores)
	mustExtend(t, stores[0], request("a", "holder", longest), longest)
	select {
	case e := <-events:
		t.Errorf("event %+v after a move", e)
	case <-time.After(300 * time.Millisecond):
	}
	release(t, stores[0], "a", "holder")
	if e := wantEvent(t, events, driver.EventGranted); e.Fence <= held.Fence {
		t.Errorf("the fence %d after %d", e.Fence, held.Fence)
	}
}

// A waiter whose entry was deleted should not be let in by the release before it.
func TestDeletedWaiterIsNotGranted(t *testing.T) {
	prefix := newPrefix()
	server := sharedServer(t)
	var stores []*zkstore.Store
	for range 2 {
		stores = append(stores, open(t, endpoints(server), zkstore.Prefix(prefix)))
	}
	conn := connect(t, server)
	_, events := holderAndWaiter(t, stores)
	entries, err := children(conn, prefix+"/a")
	must(t, err)
	for _, entry := range entries {
		data, _, err := conn.Get(prefix + "/a/" + entry)
		must(t, err)
		if want := `{"dibs":"waiter"`; string(data[:len(want)]) == want {
			must(t, conn.Delete(prefix+"/a/"+entry, -1))
		}
	}
	release(t, stores[0], "a", "holder")
	wantEvent(t, events, driver.EventRetry)
}
