//go:build unix

package localstore

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/sqldrill"
)

// Waiters keep their order while another program's transaction blocks all of them for longer than
// a waiter TTL.
func TestStallKeepsTheOrder(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	sqldrill.KeepsPlaces(t, "n", sqldrill.StallTimeout, func() driver.Store { return openAt(t, path) }, func() {
		must(t, s.file.retryBusy(t.Context(), time.Now().Add(time.Minute), func() error { return s.file.exec(beginWrite) }))
		time.Sleep(driver.WaiterTTL * 7 / 5) // the stall
		must(t, s.file.exec("rollback"))
	})
}

// When a stopped process continues, its waiter should still have its place, however long the stop.
func TestStoppedWaiterKeepsItsPlace(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c := client(t, openAt(t, path))
	lease, err := c.Mutex("n").Lock(t.Context())
	must(t, err)
	var all []*child
	for i := range 4 {
		waiter := startChild(t, "queueOnce", path)
		waiter.writeLine(strconv.Itoa(i))
		waiter.readLine("queued")
		all = append(all, waiter)
	}
	must(t, all[1].cmd.Process.Signal(syscall.SIGSTOP))
	time.Sleep(driver.WaiterTTL * 7 / 5) // the others send heartbeats
	must(t, all[1].cmd.Process.Signal(syscall.SIGCONT))
	must(t, lease.Unlock())
	for _, waiter := range all {
		waiter.readLine("done")
	}
	for i, mark := range history(t, path) {
		if mark != uint64(i) {
			t.Fatalf("served in the order %d", history(t, path))
		}
	}
}

// A living owner's entries stay without a heartbeat, and a dead owner's entries are removed, even
// if their names are not used again.
func TestEntriesOfUnusedNames(t *testing.T) {
	t.Parallel()
	now := time.Hour
	path := newFile(t)
	s, other := openWithClock(t, path, clockAt("boot", &now)), openWithClock(t, path, clockAt("boot", &now))
	for _, name := range []string{"alive", "dead"} {
		_, err := s.Acquire(t.Context(), requestOn(name, "holder"))
		must(t, err)
		if name == "dead" { // its owner is unknown, so it lives by time
			other.file.outlive = true
		}
		_, err = other.Acquire(t.Context(), requestOn(name, "waiter"))
		must(t, err)
	}
	for range 20 {
		now += time.Minute
		lockAndRelease(t, s, "busy", 0)
	}
	l, _, err := s.file.load(nil)
	must(t, err)
	if l.Names["dead"] != nil || l.Names["alive"] == nil || len(l.Names["alive"].Queue) != 1 {
		t.Errorf("%+v, want only the waiter of the live owner", l.Names)
	}
}

// A request for another name detects a missing heartbeat, and the waiter is notified.
func TestWaiterLearnsThatItsHeartbeatIsMissing(t *testing.T) {
	t.Parallel()
	now := time.Hour
	s := openWithClock(t, newFile(t), clockAt("boot", &now))
	events, _ := watch(t, s, "c", 10)
	holder := requestOn("n", "holder")
	holder.TTL = time.Second
	for _, r := range []driver.AcquireRequest{holder, requestOn("n", "waiter")} {
		_, err := s.Acquire(t.Context(), r)
		must(t, err)
	}
	now += driver.WaiterTTL
	lockAndRelease(t, s, "other", 0)
	select {
	case e := <-events:
		if e.Kind != driver.EventRetry || e.Token != "waiter" {
			t.Errorf("%+v, want a retry of the waiter", e)
		}
	case <-time.After(20 * time.Second):
		t.Error("the waiter was not notified")
	}
}

// If a live process leaves several waiters behind, only a single waiter gets the lock.
func TestAbandonedWaitersCostOneHandOff(t *testing.T) {
	t.Parallel()
	now := time.Hour
	path := newFile(t)
	s, left := openWithClock(t, path, clockAt("boot", &now)), openWithClock(t, path, clockAt("boot", &now))
	holder := requestOn("n", "holder")
	holder.TTL = time.Hour
	_, err := s.Acquire(t.Context(), holder)
	must(t, err)
	for _, token := range []string{"a", "b", "c", "d"} {
		_, err = left.Acquire(t.Context(), requestOn("n", token))
		must(t, err)
	}
	now += time.Minute
	_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "holder"})
	must(t, err)
	begin := now
	for {
		answer, err := s.Acquire(t.Context(), requestOn("n", "next"))
		must(t, err)
		if answer.Held {
			break
		}
		now += 100 * time.Millisecond
	}
	if took := now - begin; took > 2*driver.WaiterTTL {
		t.Errorf("served after %v", took)
	}
}
