package renew

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
)

// A held is a lease with a scheduler, as the root makes one.
type held struct {
	s     *Scheduler[*held]
	place Place

	mu    sync.Mutex
	state lease.State
}

func (h *held) Place() *Place { return &h.place }

func (h *held) Lock() *lease.State {
	h.mu.Lock()
	return &h.state
}

func (h *held) Unlock() { h.mu.Unlock() }

func (h *held) Commit() bool {
	defer h.mu.Unlock()
	if h.state.DetectEnd() {
		h.s.Remove(h)
	}
	if h.state.Reason() != lease.Held {
		return false
	}
	at, early := h.state.Times.NextAction()
	return h.s.Set(h, h.s.clock.Now(), at, early)
}

func (h *held) IsObserved() bool { return false }
func (h *held) RenewFailed()     {}
func (h *held) Renewed()         {}

// A store is a client whose store answers each extension in the same way.
type store struct {
	extend func() error

	mu      sync.Mutex
	renewed int
}

func (s *store) Identity() string { return "client" }

func (s *store) Go(job func()) bool {
	go job()
	return true
}

func (s *store) Extend(_ time.Time, requests []driver.ExtendRequest) ([]error, load.Outcome) {
	errs := make([]error, len(requests))
	for i := range errs {
		errs[i] = s.extend()
	}
	return errs, load.Answered
}

func (s *store) Renewed(leases int, _ time.Duration, _ float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed += leases
}

// A lease is renewed while the store answers. It ends when the store no longer has it, and at its
// deadline if no answer comes.
func TestScheduler(t *testing.T) {
	end := make(chan struct{})
	for name, test := range map[string]struct {
		extend  func() error
		renewed int
		reason  lease.Reason
	}{
		"answers": {func() error { return nil }, 10, lease.Held},
		"lost":    {func() error { return driver.ErrLost }, 0, lease.Taken},
		"silent":  {func() error { <-end; return nil }, 0, lease.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end = make(chan struct{})
				c, client := clock.New(), &store{extend: test.extend}
				var s *Scheduler[*held]
				s = New[*held](client, c, load.NewGate(c.Now, func() { s.SendMore() }))
				done := make(chan struct{})
				go s.Run(done)
				l := &held{s: s, state: lease.Granted(driver.AcquireRequest{Name: "n"}, 7, 3*time.Second)}
				l.Lock().Times.Begin(false, c.Now(), c.Now(), 3*time.Second, false, 0)
				if !l.Commit() {
					t.Fatal("not held")
				}
				time.Sleep(10*time.Second + time.Millisecond)
				reason := l.Lock().Reason()
				l.Unlock()
				client.mu.Lock()
				defer client.mu.Unlock()
				if reason != test.reason || client.renewed != test.renewed {
					t.Errorf("reason %d after %d renewals, want %d after %d", reason, client.renewed, test.reason, test.renewed)
				}
				if known := s.Len() == 1; known != (test.reason == lease.Held) {
					t.Errorf("%d leases are scheduled", s.Len())
				}
				close(end)
				close(done)
			})
		})
	}
}
