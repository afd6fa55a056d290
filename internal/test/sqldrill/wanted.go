package sqldrill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// NotifiesAtOnce lets holders ask for a notification while a waiter joins the queue. Whichever is
// first, each holder should be notified of the waiter. Transactions can be rolled back meanwhile.
func NotifiesAtOnce(t *testing.T, s driver.Store, rounds int) {
	t.Helper()
	holder, other := dibs.New(s, dibs.TTL(time.Hour), dibs.Timeout(10*time.Second)), dibs.New(s, dibs.Timeout(10*time.Second))
	for i := range rounds {
		name := fmt.Sprint("notified ", i%3)
		lease, err := holder.Mutex(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var queued sync.WaitGroup
		queued.Go(func() {
			next, err := other.Mutex(name).Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if err := next.Unlock(); err != nil {
				t.Error(err)
			}
		})
		notified := true
		select {
		case <-lease.Wanted():
		case <-time.After(20 * time.Second):
			notified = false
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
		queued.Wait()
		if !notified {
			t.Fatalf("round %d: the holder was not notified", i)
		}
	}
	for _, c := range []*dibs.Client{holder, other} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// ForgetsWhoAsked ends leases whose holders asked to be notified of waiters, in each way. A later
// lease on the name should not be notified, although its token is the same. peer is the same store
// in another process.
func ForgetsWhoAsked(t *testing.T, s, peer driver.Store) {
	t.Helper()
	w := watch(t, s)
	for kind, limit := range map[string]int{"exclusive": 1, "shared": driver.Unlimited} {
		for way, end := range map[string]func(r driver.AcquireRequest, fence uint64){
			"release":         func(r driver.AcquireRequest, _ uint64) { w.release(s, driver.ReleaseRequest{}, r) },
			"release by peer": func(r driver.AcquireRequest, _ uint64) { w.release(peer, driver.ReleaseRequest{}, r) },
			"cancel":          func(r driver.AcquireRequest, _ uint64) { w.check(s.Cancel(w.ctx, r)) },
			"revoke":          func(r driver.AcquireRequest, fence uint64) { w.revoke(r, fence) },
			"expire": func(r driver.AcquireRequest, _ uint64) {
				for w.holding(r.Name) > 0 {
					pause(w.ctx, 5*time.Millisecond) // between polls
				}
			},
			"reserve": func(r driver.AcquireRequest, _ uint64) {
				w.release(s, driver.ReleaseRequest{Reserve: time.Minute}, r)
				w.queue(r.Name, "waiter", 1)
				w.leave(r.Name, "waiter")
				w.release(s, driver.ReleaseRequest{Unreserve: true}, r)
			},
		} {
			r := driver.AcquireRequest{Name: kind + " " + way, Token: "holder", Client: w.client, TTL: time.Minute, Weight: 1, Limit: limit}
			if way == "expire" {
				r.TTL = 200 * time.Millisecond
			}
			fence := w.acquire(r)
			w.register(r, false)
			end(r, fence)
			r.TTL, r.Limit = time.Minute, 1
			fence = w.acquire(r)
			w.queue(r.Name, "waiter", 1)
			w.leave(r.Name, "waiter")
			w.revoke(r, fence) // its event is the next
		}
	}
}

// NotifiesOnce checks that a holder is notified only of the first waiter, and not after a reply
// that reports a waiter. A revocation's event comes after all others, so the test need not wait for
// unexpected events.
func NotifiesOnce(t *testing.T, s driver.Store) {
	t.Helper()
	w := watch(t, s)
	for kind, limit := range map[string]int{"exclusive": 1, "shared": driver.Unlimited} {
		r := driver.AcquireRequest{Name: kind, Token: "holder", Client: w.client, TTL: time.Minute, Weight: 1, Limit: limit}
		fence := w.acquire(r)
		peer := r
		peer.Token, peer.Client = "peer", "other"
		if limit > 1 {
			w.acquire(peer)
		}
		w.register(r, false)
		w.register(r, false)
		w.queue(r.Name, "first", 1)
		if e := w.next(); e.Kind != driver.EventWanted || e.Token != r.Token {
			t.Errorf("%s: event %+v, want that a request waits", kind, e)
		}
		w.queue(r.Name, "second", 2)
		w.leave(r.Name, "first")
		w.leave(r.Name, "second")
		if limit > 1 {
			w.register(peer, false)
		}
		w.queue(r.Name, "third", 1) // the holder did not ask again
		w.register(r, true)
		w.queue(r.Name, "fourth", 2)
		w.revoke(r, fence)
	}
}

// A watched is a client whose events a test reads.
type watched struct {
	t      *testing.T
	s      *driver.Full
	ctx    context.Context
	client string
	events chan driver.Event
}

// watch returns a client to which events flow.
func watch(t *testing.T, s driver.Store) *watched {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	w := &watched{t: t, s: driver.Complete(s), ctx: ctx, client: fmt.Sprint("watched-", rand.Uint64()), events: make(chan driver.Event, 100)}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Watch(ctx, w.client, nil, func(e driver.Event) { w.events <- e }) }) // the error is ctx's
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if e := w.next(); e.Kind != driver.EventConnected {
		t.Fatalf("event %+v, want that events flow", e)
	}
	return w
}

func (w *watched) next() driver.Event {
	w.t.Helper()
	select {
	case e := <-w.events:
		return e
	case <-w.ctx.Done():
		w.t.Fatal("no event")
		return driver.Event{}
	}
}

func (w *watched) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) acquire(r driver.AcquireRequest) (fence uint64) {
	w.t.Helper()
	reply, err := w.s.Acquire(w.ctx, r)
	if err != nil || !reply.Held {
		w.t.Fatalf("%s: %+v, %v, want it held", r.Name, reply, err)
	}
	return reply.Fence
}

func (w *watched) release(s driver.Store, r driver.ReleaseRequest, request driver.AcquireRequest) {
	w.t.Helper()
	r.Name, r.Token = request.Name, request.Token
	if held, err := s.Release(w.ctx, r); err != nil || !held {
		w.t.Fatalf("release %s: held %t, %v", request.Name, held, err)
	}
}

// revoke ends a lease, and fails unless the next event reports it.
func (w *watched) revoke(r driver.AcquireRequest, fence uint64) {
	w.t.Helper()
	if revoked, err := w.s.Revoke(w.ctx, driver.RevokeRequest{Name: r.Name, Fence: fence, Reason: "test"}); err != nil || !revoked {
		w.t.Fatalf("revoke %s: %t, %v", r.Name, revoked, err)
	}
	if e := w.next(); e.Kind != driver.EventRevoked || e.Fence != fence {
		w.t.Errorf("%s: event %+v, want only that the lease with the fence %d was revoked", r.Name, e, fence)
	}
}

// register asks for a notification, and fails unless the reply is the expected one.
func (w *watched) register(r driver.AcquireRequest, want bool) {
	w.t.Helper()
	have, err := w.s.NotifyWanted(w.ctx, driver.WantedRequest{Name: r.Name, Token: r.Token, Client: r.Client})
	if err != nil || have != want {
		w.t.Fatalf("%s: a request waits: %t, %v, want %t", r.Name, have, err, want)
	}
}

// queue adds an exclusive request to the wait queue.
func (w *watched) queue(name, token string, position int) {
	w.t.Helper()
	reply, err := w.s.Acquire(w.ctx, waiter(name, token))
	if err != nil || reply.Held || reply.Position != position {
		w.t.Fatalf("%s: %+v, %v, want it queued at %d", name, reply, err, position)
	}
}

// leave removes a request from the wait queue.
func (w *watched) leave(name, token string) {
	w.t.Helper()
	w.check(w.s.Cancel(w.ctx, waiter(name, token)))
}

func waiter(name, token string) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Token: token, Client: "other", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
}

func (w *watched) holding(name string) int {
	w.t.Helper()
	state, err := w.s.Inspect(w.ctx, name)
	w.check(err)
	return state.Holding
}

// CostsNothingUnasked checks that a waiter costs no further statement if the holder did not ask.
// The function or procedure for notifications is missing, so each use of it is an error.
func CostsNothingUnasked(t *testing.T, s driver.Store) {
	t.Helper()
	for name, limit := range map[string]int{"exclusive": 1, "shared": driver.Unlimited} {
		holder := driver.AcquireRequest{Name: name, Token: "h", Client: "c", TTL: time.Minute, Weight: 1, Limit: limit}
		waiter := driver.AcquireRequest{Name: name, Token: "w", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
		if reply, err := s.Acquire(t.Context(), holder); err != nil || !reply.Held {
			t.Fatalf("%+v, %v", reply, err)
		}
		if reply, err := s.Acquire(t.Context(), waiter); err != nil || reply.Position != 1 {
			t.Errorf("%s, not asked: %+v, %v", name, reply, err)
		}
		if err := s.Cancel(t.Context(), waiter); err != nil {
			t.Fatal(err)
		}
		if wanted, err := driver.Complete(s).NotifyWanted(t.Context(), driver.WantedRequest{Name: name, Token: "h", Client: "c"}); err != nil || wanted {
			t.Fatalf("wanted %t, %v", wanted, err)
		}
		if reply, err := s.Acquire(t.Context(), waiter); err == nil {
			t.Errorf("%s, asked: %+v, want the error that something does not exist", name, reply)
		}
	}
}
