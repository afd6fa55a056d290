// Package memstore is a store in memory: for tests, where it is exact and instant inside
// a testing/synctest bubble, for examples, and for programs of one process. Its locks are
// not visible outside the process.
package memstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// A Store is a driver.Store in memory. It has no goroutine and no timer: the next
// operation on a name removes what has expired. It is safe for concurrent use.
type Store struct {
	clock    func() time.Time
	epoch    time.Time // origin of the lock table's time
	mu       sync.Mutex
	table    *locktable.Table
	watchers map[string][]*watcher // by client
}

var (
	_ driver.Voter         = (*Store)(nil)
	_ driver.FenceReserver = (*Store)(nil)
)

type watcher struct{ on func(driver.Event) }

// An Option configures a Store that New makes. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config is what options change.
type config struct{ clock func() time.Time }

// Clock sets the clock of the store; the default is time.Now. Tests can use it to let the
// store's clock drift or jump. Clock panics if now is nil.
func Clock(now func() time.Time) Option {
	if now == nil {
		panic("dibs: memstore.Clock: the function is nil")
	}
	return Option{func(c *config) { c.clock = now }}
}

// New returns an empty store.
func New(options ...Option) *Store {
	c := config{clock: time.Now}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	s := &Store{clock: c.clock, epoch: time.Now(), table: locktable.New(), watchers: make(map[string][]*watcher)}
	s.table.Node = rand.Text()
	return s
}

// Restart makes the store lose all data, like a server that restarts without persistence.
// Watch calls continue.
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

// Groups implements driver.Store: this store can acquire any names in one step.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := valid(ctx, c); err != nil {
		return driver.AcquireReply{}, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		swept := t.Sweep(now)
		reply, notifications = t.Acquire(c, now)
		return append(swept, notifications...)
	})
	return reply, nil
}

// AcquireVote implements driver.Voter.
func (s *Store) AcquireVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (reply driver.VoteReply, err error) {
	if err := errors.Join(driver.CheckVote(c), valid(ctx, c)); err != nil {
		return driver.VoteReply{}, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		swept := t.Sweep(now)
		reply, notifications, err = t.AcquireVote(c, v, now)
		return append(swept, notifications...)
	})
	return reply, err
}

// Resize implements driver.Store.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.resize(ctx, c, nil)
}

// ResizeVote implements driver.Voter.
func (s *Store) ResizeVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (driver.AcquireReply, error) {
	return s.resize(ctx, c, &v)
}

func (s *Store) resize(ctx context.Context, c driver.AcquireRequest, v *driver.Vote) (reply driver.AcquireReply, err error) {
	if err := valid(ctx, c); err != nil {
		return driver.AcquireReply{}, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		reply, notifications = t.Resize(c, v, now)
		return notifications
	})
	return reply, nil
}

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (reply driver.FenceReply, err error) {
	if err := cmp.Or(driver.CheckFences(r), locktable.ContextEnded(ctx, "reserve fences", r.Name)); err != nil {
		return reply, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		reply, notifications = t.ReserveFences(r, now)
		return notifications
	})
	return reply, nil
}

func valid(ctx context.Context, c driver.AcquireRequest) error {
	if err := driver.CheckAcquire(c); err != nil {
		return err
	}
	if err := locktable.ContextEnded(ctx, "acquire", c.Name); err != nil {
		return err
	}
	return late("acquire", c.Name, c.Until)
}

// late rejects a request whose time limit has passed.
func late(op, name string, until time.Time) error {
	if until.IsZero() || !time.Now().After(until) {
		return nil
	}
	return &driver.UnavailableError{Op: op, Name: name, Cause: errLate}
}

var errLate = errors.New("the request arrived after its time limit")

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (revoked bool, err error) {
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	if err := locktable.ContextEnded(ctx, "revoke", r.Name); err != nil {
		return false, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		revoked, notifications = t.Revoke(r, now)
		return notifications
	})
	return revoked, nil
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, c driver.AcquireRequest) error {
	return s.cancel(ctx, c, nil)
}

// CancelVote implements driver.Voter.
func (s *Store) CancelVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) error {
	return s.cancel(ctx, c, &v)
}

func (s *Store) cancel(ctx context.Context, c driver.AcquireRequest, v *driver.Vote) error {
	if err := locktable.ContextEnded(ctx, "cancel", c.Name); err != nil {
		return err
	}
	if err := late("cancel", c.Name, c.Until); err != nil {
		return err
	}
	s.do(func(t *locktable.Table, now locktable.Now) []locktable.Notification { return t.Cancel(c, v, now) })
	return nil
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return s.release(ctx, r, nil)
}

// ReleaseVote implements driver.Voter.
func (s *Store) ReleaseVote(ctx context.Context, r driver.ReleaseRequest, v driver.Vote) (bool, error) {
	return s.release(ctx, r, &v)
}

func (s *Store) release(ctx context.Context, r driver.ReleaseRequest, v *driver.Vote) (held bool, err error) {
	if err := locktable.ContextEnded(ctx, "release", r.Name); err != nil {
		return false, err
	}
	if err := late("release", r.Name, r.Until); err != nil {
		return false, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		held, notifications = t.Release(r, v, now)
		return notifications
	})
	return held, nil
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) (errs []error) {
	if err := locktable.ContextEnded(ctx, "extend", ""); err != nil {
		return slices.Repeat([]error{err}, len(requests))
	}
	s.do(func(t *locktable.Table, now locktable.Now) []locktable.Notification {
		errs = t.Extend(requests, now)
		return nil
	})
	return errs
}

// NotifyWanted implements driver.Store.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (wanted bool, err error) {
	if err := driver.CheckWanted(r); err != nil {
		return false, err
	}
	if err := locktable.ContextEnded(ctx, "notify wanted", r.Name); err != nil {
		return false, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) (notifications []locktable.Notification) {
		wanted, notifications = t.NotifyWanted(r, now)
		return notifications
	})
	return wanted, nil
}

// Inspect implements driver.Store.
func (s *Store) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	if err := locktable.ContextEnded(ctx, "inspect", name); err != nil {
		return driver.State{}, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) []locktable.Notification {
		state = t.Inspect(name, now)
		return nil
	})
	return state, nil
}

// InspectAll implements driver.Store.
func (s *Store) InspectAll(ctx context.Context, names []string) (states []driver.State, err error) {
	if err := locktable.CheckNames(ctx, names); err != nil {
		return nil, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) []locktable.Notification {
		states = t.InspectAll(names, now)
		return nil
	})
	return states, nil
}

// Guard returns ErrLost if one of the leases that ctx carries is not held any more at this moment.
// If ctx carries none of this store, it returns ErrInvalid. ctx is that of Do or of Lease.Context.
//
// It takes the place of the Guard of a database in a unit test. That one also keeps others out
// until its transaction ends; here there is no transaction.
func (s *Store) Guard(ctx context.Context) error {
	leases, err := driver.GuardsIn(ctx, s)
	if err != nil {
		return err
	}
	s.do(func(t *locktable.Table, now locktable.Now) []locktable.Notification {
		for _, h := range leases {
			for i, name := range h.Names {
				if err == nil && !t.Holds(name, h.Token, h.Fences[i], now) {
					err = driver.NotHeld(name)
				}
			}
		}
		return nil
	})
	return err
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, pattern string) (names []string, err error) {
	if err := locktable.ContextEnded(ctx, "list", ""); err != nil {
		return nil, err
	}
	s.do(func(t *locktable.Table, now locktable.Now) []locktable.Notification {
		names, err = t.List(pattern, now)
		return nil
	})
	return names, err
}

// do runs an operation, and delivers its notifications without holding the mutex.
func (s *Store) do(op func(*locktable.Table, locktable.Now) []locktable.Notification) {
	s.mu.Lock()
	notifications := op(s.table, s.now())
	to := make([][]*watcher, len(notifications))
	for i, m := range notifications {
		to[i] = s.watchers[m.Client]
	}
	s.mu.Unlock()
	for i, m := range notifications {
		for _, w := range to[i] {
			w.on(m.Event)
		}
	}
}

// Watch implements driver.Store.
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
