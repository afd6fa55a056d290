package storetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
)

// The cases for clocks: two processes whose clocks differ use the same locks. The first is the test
// itself. The second, which is far behind, is a testing/synctest bubble: all Go clocks in it begin
// with the year 2000, and stand still during I/O. So a store needs no way to set its clock.

// A ClockCase checks a requirement for stores shared by several processes. It uses its own names.
type ClockCase struct {
	Name        string
	Requirement string
	Run         func(t *testing.T, open func(t *testing.T) driver.Store)
}

// RunClocks runs ClockCases in parallel. It is for stores shared by several processes. Each call to
// open must return another handle to the same locks, with its own connections, as in another
// process. Some calls come from a testing/synctest bubble: such a call must create all resources
// that the handle uses, and close them with its t.
func RunClocks(t *testing.T, open func(t *testing.T) driver.Store) {
	for _, c := range ClockCases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			logRequirement(t, c.Requirement)
			c.Run(t, open)
		})
	}
}

// ClockCases returns all cases with two clocks.
func ClockCases() []ClockCase {
	return []ClockCase{
		{"clock behind", "a lease of a process whose clock is behind excludes others for its TTL, not longer", clockBehind},
		{"clock ahead", "a lease of a process whose clock is ahead excludes others for its TTL, not longer", clockAhead},
		{"clock of a renewal", "a lease that a process whose clock is behind extends is extended for the others", clockOfRenewal},
		{"clock of a waiter", "a waiter whose clock is behind keeps its place, and is served", clockOfWaiter},
		{"clock of a resize", "a reader whose clock is behind keeps a writer out, and can become one", clockOfResize},
		{"clocks and fences", "fences grow, whatever the clocks of the holders", clocksAndFences},
	}
}

// slowly calls f with a client in another process, whose clock is far behind.
func slowly(t *testing.T, open func(t *testing.T) driver.Store, f func(p *testClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newSilentClient(t, driver.Complete(open(t)))) })
}

func clockBehind(t *testing.T, open func(t *testing.T) driver.Store) {
	fast := newSilentClient(t, driver.Complete(open(t)))
	try := fast.newTry("clock behind")
	slowly(t, open, func(slow *testClient) { slow.mustAcquire(slow.newRequest("clock behind")) })
	if a := fast.acquire(try); a.Held || a.Remaining > time.Minute {
		t.Fatalf("%+v, while a process whose clock is behind has a lease of a minute", a)
	}
	short := fast.newTry("clock behind, short")
	var due time.Time
	ttl := fast.shortTTL()
	slowly(t, open, func(slow *testClient) {
		r := slow.newRequest(short.Name)
		r.TTL = ttl
		slow.mustAcquire(r)
	})
	due = time.Now().Add(ttl)
	fast.acquireBy(short, due)
}

func clockAhead(t *testing.T, open func(t *testing.T) driver.Store) {
	fast := newSilentClient(t, driver.Complete(open(t)))
	r := fast.newRequest("clock ahead")
	fast.mustAcquire(r)
	slowly(t, open, func(slow *testClient) {
		if a := slow.acquire(slow.newTry(r.Name)); a.Held || a.Remaining > time.Minute {
			t.Errorf("%+v, while a process whose clock is ahead has a lease of a minute", a)
		}
	})
	r = fast.newRequest("clock ahead, short")
	r.TTL = fast.shortTTL()
	fast.mustAcquire(r)
	fast.sleepPast(r.TTL + ttl/4)
	slowly(t, open, func(slow *testClient) {
		if a := slow.acquire(slow.newTry(r.Name)); !a.Held {
			t.Errorf("%+v, after the lease of a process whose clock is ahead has ended", a)
		}
	})
}

func clockOfRenewal(t *testing.T, open func(t *testing.T) driver.Store) {
	fast := newSilentClient(t, driver.Complete(open(t)))
	r := fast.newRequest("clock of a renewal")
	r.TTL = longTTL
	fast.mustAcquire(r)
	slowly(t, open, func(slow *testClient) {
		if err := slow.extend(r, time.Minute); err != nil {
			t.Errorf("extend by a process whose clock is behind: %v", err)
		}
	})
	if a := fast.acquire(fast.newTry(r.Name)); a.Held || a.Remaining < time.Minute/2 {
		t.Errorf("%+v, want the minute that a process whose clock is behind has extended", a)
	}
}

// longTTL is much longer than a busy machine needs for a step.
const longTTL = 20 * time.Second

func clockOfWaiter(t *testing.T, open func(t *testing.T) driver.Store) {
	fast := newSilentClient(t, driver.Complete(open(t)))
	r := fast.newRequest("clock of a waiter")
	fence := fast.mustAcquire(r).Fence
	var waits driver.AcquireRequest
	slowly(t, open, func(slow *testClient) {
		waits = slow.newRequest(r.Name)
		slow.mustQueue(waits, 1)
	})
	if a := fast.acquire(fast.newTry(r.Name)); a.Held {
		t.Fatalf("%+v, while a lease is valid", a)
	}
	fast.mustQueue(fast.newRequest(r.Name), 2)
	fast.mustRelease(r, fence)
	fast.wantHolder(r.Name, waits.Token)
}

func clockOfResize(t *testing.T, open func(t *testing.T) driver.Store) {
	fast := newSilentClient(t, driver.Complete(open(t)))
	skipWithoutReaders(t, fast.s)
	writer := fast.newWriter("clock of a resize")
	writer.Queue = false
	var reader driver.AcquireRequest
	slowly(t, open, func(slow *testClient) {
		reader = slow.newReader(writer.Name)
		slow.mustAcquire(reader)
	})
	if a := fast.acquire(writer); a.Held {
		t.Fatalf("%+v: a writer beside a reader whose clock is behind", a)
	}
	slowly(t, open, func(slow *testClient) { slow.mustResize(reader, driver.Unlimited, driver.Unlimited) })
	second := fast.newReader(writer.Name)
	second.Queue = false
	if a := fast.acquire(second); a.Held {
		t.Errorf("%+v: a reader beside a writer whose clock is behind", a)
	}
}

func clocksAndFences(t *testing.T, open func(t *testing.T) driver.Store) {
	fast := newSilentClient(t, driver.Complete(open(t)))
	var last uint64
	locked := func(p *testClient) {
		r := p.newRequest("clocks and fences")
		fence := p.mustAcquire(r).Fence
		if fence <= last {
			t.Errorf("fence %d after %d", fence, last)
		}
		last = fence
		p.mustRelease(r, fence)
	}
	for range 3 {
		slowly(t, open, locked)
		locked(fast)
	}
}

// newTry returns a new request that does not queue.
func (p *testClient) newTry(name string) driver.AcquireRequest {
	r := p.newRequest(name)
	r.Queue = false
	return r
}
