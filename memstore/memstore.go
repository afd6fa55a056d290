// Package memstore keeps claims in memory: for tests, where it is exact and
// instant inside a testing/synctest bubble, for examples, and for programs of one
// process. It excludes nobody outside the process.
package memstore

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// A Store is a dibs.Store in memory. It has no goroutine and no timer: what has
// expired is found by whoever looks next. It is safe for concurrent use.
type Store struct {
	clock    func() time.Time
	epoch    time.Time // the lock table's time counts from here
	mu       sync.Mutex
	table    *locktable.Table
	watchers map[string][]*watcher // by client
}

var _ driver.Store = (*Store)(nil)

type watcher struct{ on func(driver.Event) }

// An Option adjusts a store.
type Option func(*Store)

// Clock makes the store keep time by another clock than time.Now: to see what one that
// drifts or jumps does to those who hold.
func Clock(now func() time.Time) Option { return func(s *Store) { s.clock = now } }

// New returns an empty store.
func New(options ...Option) *Store {
	s := &Store{clock: time.Now, epoch: time.Now(), table: locktable.New(), watchers: make(map[string][]*watcher)}
	s.table.Node = rand.Text()
	for _, o := range options {
		o(s)
	}
	return s
}

// Restart makes the store forget everything, as a server does that comes back without
// its data. Who watches goes on.
func (s *Store) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = locktable.New()
	s.table.Node, s.table.RestartedAt = rand.Text(), s.now().At
}

func (s *Store) now() locktable.Now {
	now := s.clock()
	return locktable.Now{At: now.Sub(s.epoch), Wall: now}
}

// Groups implements dibs.Store: this one can take any names in one step.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// Acquire implements dibs.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (answer driver.AcquireReply, err error) {
	if err := valid(ctx, c); err != nil {
		return driver.AcquireReply{}, err
	}
	s.do(func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification) {
		l.Sweep(now)
		answer, mail, err = l.Acquire(c, now)
		return mail
	})
	return answer, err
}

// Reweigh implements dibs.Store.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (answer driver.AcquireReply, err error) {
	if err := valid(ctx, c); err != nil {
		return driver.AcquireReply{}, err
	}
	s.do(func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification) {
		answer, mail = l.Resize(c, now)
		return mail
	})
	return answer, nil
}

func valid(ctx context.Context, c driver.AcquireRequest) error {
	if err := locktable.CheckRequest(c); err != nil {
		return err
	}
	if err := locktable.ContextEnded(ctx, "acquire", c.Name); err != nil {
		return err
	}
	return late("acquire", c.Name, c.Until)
}

// late refuses a request that is void by now.
func late(op, name string, until time.Time) error {
	if until.IsZero() || !time.Now().After(until) {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: errLate}
}

var errLate = errors.New("the request is void: it came too late")

// Break implements dibs.Store.
func (s *Store) Revoke(ctx context.Context, name string, fence uint64) (broken bool, err error) {
	if err := driver.CheckName(name); err != nil {
		return false, err
	}
	if err := locktable.ContextEnded(ctx, "break", name); err != nil {
		return false, err
	}
	s.do(func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification) {
		broken, mail = l.Revoke(name, fence, now)
		return mail
	})
	return broken, nil
}

// Abandon implements dibs.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	if err := locktable.ContextEnded(ctx, "abandon", c.Name); err != nil {
		return err
	}
	if err := late("abandon", c.Name, c.Until); err != nil {
		return err
	}
	s.do(func(l *locktable.Table, now locktable.Now) []locktable.Notification { return l.Cancel(c, now) })
	return nil
}

// Release implements dibs.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (held bool, err error) {
	if err := locktable.ContextEnded(ctx, "release", r.Name); err != nil {
		return false, err
	}
	if err := late("release", r.Name, r.Until); err != nil {
		return false, err
	}
	s.do(func(l *locktable.Table, now locktable.Now) (mail []locktable.Notification) {
		held, mail = l.Release(r, now)
		return mail
	})
	return held, nil
}

// Extend implements dibs.Store.
func (s *Store) Extend(ctx context.Context, holds []driver.ExtendRequest) (errs []error) {
	if err := locktable.ContextEnded(ctx, "extend", ""); err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	s.do(func(l *locktable.Table, now locktable.Now) []locktable.Notification {
		errs = l.Extend(holds, now)
		return nil
	})
	return errs
}

// Inspect implements dibs.Store.
func (s *Store) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	if err := locktable.ContextEnded(ctx, "inspect", name); err != nil {
		return driver.State{}, err
	}
	s.do(func(l *locktable.Table, now locktable.Now) []locktable.Notification {
		state = l.Inspect(name, now)
		return nil
	})
	return state, nil
}

// List implements dibs.Store.
func (s *Store) List(ctx context.Context, pattern string) (names []string, err error) {
	if err := locktable.ContextEnded(ctx, "list", ""); err != nil {
		return nil, err
	}
	s.do(func(l *locktable.Table, now locktable.Now) []locktable.Notification {
		names, err = l.List(pattern, now)
		return nil
	})
	return names, err
}

// do runs an operation, and sends its messages without the mutex.
func (s *Store) do(op func(*locktable.Table, locktable.Now) []locktable.Notification) {
	s.mu.Lock()
	mail := op(s.table, s.now())
	to := make([][]*watcher, len(mail))
	for i, m := range mail {
		to[i] = s.watchers[m.Client]
	}
	s.mu.Unlock()
	for i, m := range mail {
		for _, w := range to[i] {
			w.on(m.Event)
		}
	}
}

// Watch implements dibs.Store.
func (s *Store) Watch(ctx context.Context, client string, on func(driver.Event)) error {
	w := &watcher{on: on}
	s.mu.Lock()
	s.watchers[client] = append(s.watchers[client], w)
	s.mu.Unlock()
	on(driver.Event{Kind: driver.EventConnected})
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(s.watchers[client]), func(o *watcher) bool { return o == w })
	if len(left) == 0 {
		delete(s.watchers, client)
	} else {
		s.watchers[client] = left
	}
	return context.Cause(ctx)
}
