package redisstore_test

import (
	_ "embed"
	"strconv"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// lateQueue is a held lock with a late waiter and another behind it, on each server kind.
func lateQueue(t *testing.T, run func(t *testing.T, server *redistest.Server, p *testClient, holder, late, next driver.AcquireRequest)) {
	t.Parallel()
	for kind, options := range serverKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := startKind(t, kind)
			p := watchingClient(t, open(t, server, append(options, redisstore.Prefix(""))...))
			holder, late, next := p.request("n"), p.request("n"), p.request("n")
			late.Late = true
			p.mustAcquire(holder)
			p.mustWait(late)
			p.mustWait(next)
			run(t, server, p, holder, late, next)
		})
	}
}

func (p *testClient) wantRetry(r driver.AcquireRequest) {
	p.t.Helper()
	if e := p.nextEvent(); e.Kind != driver.EventRetry || e.Token != r.Token {
		p.t.Fatalf("event %+v, want a retry of %s", e, r.Token)
	}
}

// A release should pass over a late waiter that does not answer, and grant to the next waiter at
// once. The late waiter should keep its place, and acquire the lock with its own request once the
// lock is free.
func TestLateWaiterIsPassedOver(t *testing.T) {
	lateQueue(t, func(t *testing.T, _ *redistest.Server, p *testClient, holder, late, next driver.AcquireRequest) {
		p.mustRelease(holder, 0)
		p.wantRetry(late)
		p.wantGrant(next)
		p.mustRelease(next, 0) // the late waiter is still passed over
		if state := p.inspect("n"); state.Holding != 0 || state.Waiting != 1 {
			t.Fatalf("%+v, want a free name with a waiter", state)
		}
		other := p.request("n")
		p.mustAcquire(other) // the lock is not idle while the late waiter is silent
		if a := p.mustWait(late); a.Position != 1 {
			t.Errorf("position %d, want 1", a.Position)
		}
		p.mustRelease(other, 0)
		p.mustAcquire(late)
	})
}

// A late waiter that answers in time should be granted the lock at the next release, before the
// waiters behind it.
func TestLateWaiterAnswers(t *testing.T) {
	lateQueue(t, func(t *testing.T, _ *redistest.Server, p *testClient, holder, late, next driver.AcquireRequest) {
		third := p.request("n")
		p.mustWait(third)
		for range 5 { // a busy machine may be too slow to answer in time
			p.mustRelease(holder, 0)
			p.wantRetry(late)
			if a := p.mustWait(late); a.Position != 1 {
				t.Fatalf("position %d, want 1", a.Position)
			}
			p.wantGrant(next)
			p.mustRelease(next, 0)
			e := p.nextEvent()
			if e.Kind == driver.EventGranted && e.Token == late.Token {
				p.mustRelease(late, 0)
				p.wantGrant(third)
				return
			}
			t.Logf("%+v: the answer was late", e)
			p.wantGrant(third)
			holder, next, third = third, p.request("n"), p.request("n")
			p.mustWait(late)
			p.mustWait(next)
			p.mustWait(third)
		}
		t.Error("no answer was in time")
	})
}

// A late waiter whose answers are always late is granted the lock in the end.
func TestLateWaiterDoesNotStarve(t *testing.T) {
	lateQueue(t, func(t *testing.T, server *redistest.Server, p *testClient, holder, late, next driver.AcquireRequest) {
		p.mustRelease(holder, 0)
		p.wantRetry(late)
		p.wantGrant(next)
		p.mustWait(late)
		third := p.request("n")
		p.mustWait(third)
		shiftMark(t, server, "n", driver.LatePatience.Microseconds())
		p.mustRelease(next, 0)
		p.wantGrant(late)
	})
}

//go:embed testdata/shift_marks.lua
var shiftMarks string

// shiftMark moves the mark for a name's late waiter into the past, without an answer.
func shiftMark(t *testing.T, server *redistest.Server, name string, by int64) {
	t.Helper()
	server.MustCmd(t, "EVAL", shiftMarks, "1", "{"+name+"}"+meta, strconv.FormatInt(by, 10))
}
