package storetest

import (
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// fenceCases check a driver.FenceReserver. For other stores they are skipped.
func fenceCases() []Case {
	return []Case{
		{"reserve fences", "reserved fences follow each other, and are larger than earlier and smaller than later ones", reserveFences},
		{"reserve least", "the last reserved fence is at least the one that the request says", reserveLeast},
		{"reserve nothing", "a reservation changes neither the lease, its fence, nor its TTL", reserveChangesNothing},
		{"reserve needs a lease", "a token that does not hold reserves nothing", reserveNeedsLease},
		{"reserve concurrently", "concurrent reservations of one lease have no fence in common", reserveConcurrently},
		{"reserve for a reader", "a shared lease reserves nothing", reserveForReader},
		{"invalid reservation", "an invalid request returns ErrInvalid", invalidReservation},
	}
}

// reserve reserves fences, and returns the reply.
func (p *testClient) reserve(r driver.FenceRequest) driver.FenceReply {
	p.t.Helper()
	needs(p.t, p.s, "FenceReserver")
	reply, err := p.s.ReserveFences(operationContext(p.t), r)
	if err != nil {
		p.t.Fatalf("reserve fences %+v: %v", r, err)
	}
	return reply
}

func reserveFences(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	first, waiter, third := p.newRequest("n"), p.newRequest("n"), p.newRequest("n")
	fence := p.mustAcquire(first).Fence
	last := fence
	for _, n := range []int{1, 1000, 0, 7} {
		reply := p.reserve(driver.FenceRequest{Name: "n", Token: first.Token, Count: n})
		if !reply.Held || reply.Last < last+uint64(n) {
			t.Fatalf("%d fences: %+v after %d", n, reply, last)
		}
		last = reply.Last
	}
	p.mustQueue(waiter, 1)
	p.mustRelease(first, fence)
	p.wantGranted(waiter)
	second := p.mustAcquire(waiter).Fence
	if second <= last {
		t.Fatalf("fence %d of a hand-off, want more than %d", second, last)
	}
	last = p.reserve(driver.FenceRequest{Name: "n", Token: waiter.Token, Count: 100}).Last
	p.mustRelease(waiter, second)
	if next := p.acquireSoon(third); next <= last {
		t.Fatalf("fence %d, want more than %d", next, last)
	}
}

func reserveLeast(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	c := p.newRequest("n")
	fence := p.mustAcquire(c).Fence
	least := fence + 5_000_000_000 // more than an hour ahead of the clock
	if reply := p.reserve(driver.FenceRequest{Name: "n", Token: c.Token, Count: 10, Least: least}); !reply.Held || reply.Last < least {
		t.Fatalf("%+v, want at least %d", reply, least)
	}
	// The clock is far behind the fences: each request still brings as many as it requests.
	last := least
	for range 3 {
		reply := p.reserve(driver.FenceRequest{Name: "n", Token: c.Token, Count: 500})
		if !reply.Held || reply.Last < last+500 {
			t.Fatalf("%+v after %d, want 500 more", reply, last)
		}
		last = reply.Last
	}
	if raised := p.reserve(driver.FenceRequest{Name: "n", Token: c.Token, Least: last + 9}); raised.Last < last+9 {
		t.Fatalf("%+v, want at least %d", raised, last+9)
	}
	p.mustRelease(c, fence)
	if next := p.mustAcquire(p.newRequest("n")).Fence; next <= last+9 {
		t.Fatalf("fence %d, want more than %d", next, last+9)
	}
}

func reserveChangesNothing(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	c := p.newRequest("n")
	fence := p.mustAcquire(c).Fence
	p.reserve(driver.FenceRequest{Name: "n", Token: c.Token, Count: 1000})
	needs(t, s, "Inspector")
	state, err := s.Inspect(operationContext(t), "n")
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != c.Token || state.Holders[0].Remaining > c.TTL {
		t.Fatalf("%+v, %v", state, err)
	}
	if h := state.Holders[0]; h.Fence != 0 && h.Fence != fence {
		t.Errorf("the holder has fence %d, want %d", h.Fence, fence)
	}
	needs(t, s, "Revoker")
	if revoked, err := s.Revoke(operationContext(t), driver.RevokeRequest{Name: "n", Fence: fence}); err != nil || !revoked {
		t.Errorf("revoke: %v, %v", revoked, err)
	}
}

func reserveNeedsLease(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	c, stranger := p.newRequest("n"), p.newRequest("n")
	if reply := p.reserve(driver.FenceRequest{Name: "n", Token: c.Token, Count: 1}); reply.Held {
		t.Fatalf("a free name: %+v", reply)
	}
	fence := p.mustAcquire(c).Fence
	if reply := p.reserve(driver.FenceRequest{Name: "n", Token: stranger.Token, Count: 1}); reply.Held {
		t.Fatalf("another token: %+v", reply)
	}
	p.mustRelease(c, fence)
	if reply := p.reserve(driver.FenceRequest{Name: "n", Token: c.Token, Count: 1}); reply.Held {
		t.Fatalf("after the release: %+v", reply)
	}
}

func reserveConcurrently(t *testing.T, s *driver.Full) {
	needs(t, s, "FenceReserver")
	p := newSilentClient(t, s)
	c := p.newRequest("n")
	p.mustAcquire(c)
	const each = 10
	last := make(chan uint64, 40)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range cap(last) / 4 {
				reply, err := s.ReserveFences(operationContext(t), driver.FenceRequest{Name: "n", Token: c.Token, Count: each})
				if err != nil || !reply.Held {
					t.Errorf("%+v, %v", reply, err)
				}
				last <- reply.Last
			}
		})
	}
	group.Wait()
	close(last)
	var before uint64
	for _, fence := range slices.Sorted(channelValues(last)) {
		if fence < before+each {
			t.Errorf("fences up to %d and up to %d: want %d each", before, fence, each)
		}
		before = fence
	}
}

func reserveForReader(t *testing.T, s *driver.Full) {
	skipWithoutReaders(t, s)
	p := newSilentClient(t, s)
	c := p.newReader("n")
	p.mustAcquire(c)
	if reply := p.reserve(driver.FenceRequest{Name: "n", Token: c.Token, Count: 1}); reply.Held {
		t.Fatalf("%+v, want no fences", reply)
	}
}

func channelValues(c <-chan uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}

func invalidReservation(t *testing.T, s *driver.Full) {
	needs(t, s, "FenceReserver")
	for _, bad := range []driver.FenceRequest{
		{Name: "", Token: "t", Count: 1}, {Name: "n", Count: 1}, {Name: "n", Token: "t", Count: -1},
		{Name: "n", Token: "t", Count: driver.MaxFences + 1}, {Name: "n", Token: "t", Count: 1, Least: 1<<53 + 1},
	} {
		if _, err := s.ReserveFences(operationContext(t), bad); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", bad, err)
		}
	}
}
