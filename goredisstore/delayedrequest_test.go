package goredisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// A lone request to a fast server is retried soon if it gets no reply. The first attempt can
// arrive after the reply to the retry, and must then have no effect.
func TestLateAttemptsAreVoid(t *testing.T) {
	t.Parallel()
	const token = "caller-chosen"
	type scenario struct {
		*fixture
		locks, rival *dibs.Client
		lease        *dibs.Lease // shared by the steps
	}
	for _, what := range []struct {
		name   string
		before func(s *scenario)       // may be nil
		first  func(s *scenario) error // its first request is delayed, and retried
		after  func(s *scenario)       // before the delayed request is delivered
		holder string                  // token that must hold in the end, or ""
	}{
		{name: "a mutex", first: func(s *scenario) error {
			l, err := s.locks.Mutex(job).Lock(deadline(s.t, generous))
			s.lease = l
			return err
		}, after: func(s *scenario) { s.unlock(s.lease) }},
		{name: "a reader", first: func(s *scenario) error {
			l, err := s.locks.RWMutex(job).Reader().TryLock(s.t.Context())
			s.lease = l
			return err
		}, after: func(s *scenario) { s.unlock(s.lease) }},
		{name: "two permits", first: func(s *scenario) error {
			l, err := s.locks.Semaphore(job, 3).Permits(2).Lock(deadline(s.t, generous))
			s.lease = l
			return err
		}, after: func(s *scenario) { s.unlock(s.lease) }},
		{name: "two names", first: func(s *scenario) error {
			l, err := s.locks.All([]string{job, "another"}).Lock(deadline(s.t, generous))
			s.lease = l
			return err
		}, after: func(s *scenario) { s.unlock(s.lease) }},
		{name: "held by another client", before: func(s *scenario) {
			s.lease = s.lock(s.rival, job)
		}, first: func(s *scenario) error {
			_, err := s.locks.Mutex(job).TryLock(s.t.Context())
			s.wantErr(err, dibs.ErrBusy)
			return nil
		}, after: func(s *scenario) { s.unlock(s.lease) }},
		{name: "cancelled in the queue", before: func(s *scenario) {
			s.lease = s.lock(s.rival, job)
		}, first: func(s *scenario) error {
			ctx, cancel := context.WithCancel(s.t.Context())
			defer cancel()
			_, err := s.locks.Mutex(job).Lock(ctx, dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { cancel() }}))
			s.wantErr(err, dibs.ErrBusy)
			return nil
		}, after: func(s *scenario) { s.unlock(s.lease) }},
		{name: "a release, then the same token again", before: func(s *scenario) {
			s.lease = s.lock(s.locks, job, dibs.OwnerToken(token))
		}, first: func(s *scenario) error {
			return s.lease.Unlock()
		}, after: func(s *scenario) {
			s.lease = s.lock(s.locks, job, dibs.OwnerToken(token))
		}, holder: token},
	} {
		t.Run(what.name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				s := &scenario{fixture: setUp(t)}
				proxy := s.proxy()
				s.locks, s.rival = s.newClient(proxy.Addr(), dibs.TTL(2*generous)), s.newClient(s.server.Addr(), dibs.TTL(2*generous))
				if what.before != nil {
					what.before(s)
				}
				for range 20 { // so that the store sees a lone caller and a fast server
					s.unlock(s.lock(s.locks, "warm"))
				}
				held, release := proxy.HoldNextRequest(key)
				start := time.Now()
				if err := what.first(s); err != nil && time.Since(start) < 400*time.Millisecond {
					t.Fatalf("the retry: %v", err)
				}
				s.await("a request is delayed", held)
				if took := time.Since(start); took > 400*time.Millisecond {
					release()
					continue // the server seemed slow, so the store did not retry
				}
				what.after(s)
				calls := s.scripts()
				release()
				s.eventually("the first request arrives", func() bool { return s.scripts() > calls })
				if what.holder != "" {
					if v := s.call("GET", key); v != what.holder {
						t.Errorf("held by %v, want %s", v, what.holder)
					}
					s.unlock(s.lease)
				}
				s.eventually("no keys are left", func() bool { return len(s.remainingKeys()) == 0 })
				return
			}
			t.Skip("SKIPPED: the machine is too busy for the server to seem fast")
		})
	}
}
