package goredisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// A lone request to a quick server is sent again soon if it has no answer. What was
// sent first may arrive when all is over, and must do nothing then.
func TestFirstTriesAreVoid(t *testing.T) {
	t.Parallel()
	const token = "one-piece-of-work"
	type scene struct {
		*fixture
		locks, rival *dibs.Client
		work         *dibs.Lease // whose end is part of the scene
	}
	for _, what := range []struct {
		name   string
		before func(s *scene)
		first  func(s *scene) error // whose request is held up, and sent again
		after  func(s *scene)       // until that is delivered
		holder string               // in the end: a token, or nobody
	}{
		{name: "a mutex", first: func(s *scene) error {
			l, err := s.locks.Mutex(job).Lock(deadline(s.t, generous))
			s.work = l
			return err
		}, after: func(s *scene) { s.unlock(s.work) }},
		{name: "a reader", first: func(s *scene) error {
			l, err := s.locks.RWMutex(job).TryRLock(s.t.Context())
			s.work = l
			return err
		}, after: func(s *scene) { s.unlock(s.work) }},
		{name: "two permits", first: func(s *scene) error {
			l, err := s.locks.Semaphore(job, 3).Acquire(deadline(s.t, generous), 2)
			s.work = l
			return err
		}, after: func(s *scene) { s.unlock(s.work) }},
		{name: "two names", first: func(s *scene) error {
			l, err := s.locks.All(job, "another").Lock(deadline(s.t, generous))
			s.work = l
			return err
		}, after: func(s *scene) { s.unlock(s.work) }},
		{name: "taken by another", before: func(s *scene) {
			s.work = s.lock(s.rival, job)
		}, first: func(s *scene) error {
			_, err := s.locks.Mutex(job).TryLock(s.t.Context())
			s.wantErr(err, dibs.ErrBusy)
			return nil
		}, after: func(s *scene) { s.unlock(s.work) }},
		{name: "given up in the queue", before: func(s *scene) {
			s.work = s.lock(s.rival, job)
		}, first: func(s *scene) error {
			ctx, cancel := context.WithCancel(s.t.Context())
			defer cancel()
			_, err := s.locks.Mutex(job).Lock(ctx, dibs.Observe(dibs.Hooks{Waiting: func(dibs.Waiting) { cancel() }}))
			s.wantErr(err, dibs.ErrBusy)
			return nil
		}, after: func(s *scene) { s.unlock(s.work) }},
		{name: "a release, and the token again", before: func(s *scene) {
			s.work = s.lock(s.locks, job, dibs.Token(token))
		}, first: func(s *scene) error {
			return s.work.Unlock()
		}, after: func(s *scene) {
			s.work = s.lock(s.locks, job, dibs.Token(token))
		}, holder: token},
	} {
		t.Run(what.name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				s := &scene{fixture: setUp(t)}
				proxy := s.proxy()
				s.locks, s.rival = s.newClient(proxy.Addr(), dibs.TTL(2*generous)), s.newClient(s.server.Addr(), dibs.TTL(2*generous))
				if what.before != nil {
					what.before(s)
				}
				for range 20 { // nobody else is about, and the server answers quickly
					s.unlock(s.lock(s.locks, "warm"))
				}
				held, release := proxy.HoldNextRequest(key)
				start := time.Now()
				if err := what.first(s); err != nil && time.Since(start) < 400*time.Millisecond {
					t.Fatalf("the second try: %v", err)
				}
				s.await("a request is held", held)
				if took := time.Since(start); took > 400*time.Millisecond {
					release()
					continue // the server did not seem quick: it was not sent again by the store
				}
				what.after(s)
				calls := s.scripts()
				release()
				s.eventually("the first request arrives", func() bool { return s.scripts() > calls })
				if what.holder != "" {
					if v := s.call("GET", key); v != what.holder {
						t.Errorf("held by %v, want %s", v, what.holder)
					}
					s.unlock(s.work)
				}
				s.eventually("what was abandoned is gone, and nothing else came", func() bool { return len(s.remainingKeys()) == 0 })
				return
			}
			t.Skip("SKIPPED: the machine is too busy for a server to seem quick")
		})
	}
}
