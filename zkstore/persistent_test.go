package zkstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// Sessions of this server are short, so longer leases are persistent znodes.
const shortSessions = "maxSessionTimeout=5000"

// persists is a TTL that is longer than such a session.
const persists = 8 * time.Second

// A holder's process ends without a release. Its lease should end at its TTL, whoever waits for it.
func TestPersistentLeaseEndsAtItsTTL(t *testing.T) {
	t.Parallel()
	servers := endpoints(shortSessionServer(t))
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprint("a waiter ", waits), func(t *testing.T) {
			t.Parallel()
			prefix := newPrefix()
			crashes := zkstore.New(servers, zkstore.Prefix(prefix))
			s := open(t, servers, zkstore.Prefix(prefix))
			begin := time.Now()
			fence := wantHeld(t, crashes, request("n", "crashed", persists)).Fence
			held := time.Now()
			must(t, crashes.Close())
			next := try("n", "next", 2*time.Second)
			if waits {
				next.Queue = true
				grants := watchGrants(t, s, next.Client)
				if reply := wantBusy(t, s, next); reply.Remaining > persists || reply.Remaining < persists/2 {
					t.Errorf("%v remain of %v", reply.Remaining, persists)
				}
				held := make(chan struct{})
				go func() {
					defer close(held)
					keepWaiting(t, s, next)
				}()
				select {
				case <-grants:
				case <-held: // by its heartbeat
				case <-time.After(persists + 10*time.Second):
					t.Fatal("not granted")
				}
			}
			var reply driver.AcquireReply
			eventually(t, persists+10*time.Second, func() error {
				if reply = acquire(t, s, next); !reply.Held {
					return fmt.Errorf("%+v, want it held", reply)
				}
				return nil
			})
			if early := time.Since(begin); early < persists {
				t.Errorf("held by another %v after the acquire with a TTL of %v", early, persists)
			}
			if late := time.Since(held) - persists; late > 3*time.Second {
				t.Errorf("held by another %v late", late)
			} else {
				t.Logf("FIGURE held by another %v late", late)
			}
			if reply.Fence <= fence {
				t.Errorf("fence %d after %d", reply.Fence, fence)
			}
		})
	}
}

// keepWaiting sends the heartbeats of a waiter until it holds the name.
func keepWaiting(t *testing.T, s *zkstore.Store, r driver.AcquireRequest) {
	for t.Context().Err() == nil {
		if reply, err := s.Acquire(t.Context(), r); err == nil && reply.Held {
			return
		}
		time.Sleep(time.Second)
	}
}

// A reservation and a long lease should outlast the process that made them, and end in time.
func TestReservationOutlastsItsProcess(t *testing.T) {
	t.Parallel()
	servers := endpoints(shortSessionServer(t))
	for _, ttl := range []time.Duration{2 * time.Second, persists} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			prefix := newPrefix()
			ends := zkstore.New(servers, zkstore.Prefix(prefix))
			s := open(t, servers, zkstore.Prefix(prefix))
			wantHeld(t, ends, request("n", "token", ttl))
			begin := time.Now()
			if _, err := ends.Release(soon(t), driver.ReleaseRequest{Name: "n", Token: "token", Reserve: persists}); err != nil {
				t.Fatal(err)
			}
			must(t, ends.Close())
			next := try("n", "next", 2*time.Second)
			var at time.Time
			eventually(t, persists+10*time.Second, func() error {
				reply := acquire(t, s, next)
				if at = time.Now(); reply.Held {
					return nil
				}
				if !reply.Reserved || reply.Remaining > persists {
					t.Fatalf("%+v, want it reserved", reply)
				}
				return fmt.Errorf("%+v, want it held", reply)
			})
			if took := at.Sub(begin); took < persists || took > persists+3*time.Second {
				t.Errorf("reserved for %v, want %v", took, persists)
			}
		})
	}
}

// A renewal should move a lease to a persistent znode, and keep its place and fence.
func TestExtendToAPersistentLease(t *testing.T) {
	t.Parallel()
	servers, prefix := endpoints(shortSessionServer(t)), newPrefix()
	ends := zkstore.New(servers, zkstore.Prefix(prefix))
	s := open(t, servers, zkstore.Prefix(prefix))
	r := request("n", "token", 2*time.Second)
	fence := wantHeld(t, ends, r).Fence
	waiter := request("n", "waiter", 2*time.Second)
	grants := watchGrants(t, s, waiter.Client)
	wantBusy(t, s, waiter)
	go keepWaiting(t, s, waiter)
	mustExtend(t, ends, r, time.Hour)
	must(t, ends.Close())
	select {
	case e := <-grants:
		if state, err := s.Inspect(soon(t), "n"); err != nil || state.Holding != 1 || state.Holders[0].Token != "token" {
			t.Fatalf("%+v: %+v, %v, want the long lease", e, state, err)
		}
	case <-time.After(4 * time.Second): // its first session has ended
	}
	mustExtend(t, s, r, time.Hour)
	state, err := s.Inspect(soon(t), "n")
	must(t, err)
	if state.Holding != 1 || state.Waiting != 1 || state.Holders[0].Fence != fence {
		t.Errorf("%+v, want the fence %d and a waiter", state, fence)
	}
	release(t, s, "n", "token")
	select {
	case <-grants:
	case <-time.After(10 * time.Second):
		t.Fatal("the waiter was not granted the name")
	}
}

// A TTL below half of the shortest session should be refused.
func TestShortestTTL(t *testing.T) {
	t.Parallel()
	s := open(t, endpoints(shortSessionServer(t)), zkstore.Prefix(newPrefix()))
	for ttl, want := range map[time.Duration]error{499 * time.Millisecond: driver.ErrInvalid, 500 * time.Millisecond: nil, time.Second: nil} {
		_, err := s.Acquire(soon(t), request(fmt.Sprint(ttl), "token", ttl))
		if !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", ttl, err, want)
		}
	}
}
