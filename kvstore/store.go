package kvstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// A Store is a driver.Store on lock tables. It is safe for concurrent use.
type Store struct {
	tables Tables
	groups func(names []string) [][]string
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Grouper        = (*Store)(nil)
	_ driver.Resizer        = (*Store)(nil)
	_ driver.Revoker        = (*Store)(nil)
	_ driver.WantedNotifier = (*Store)(nil)
	_ driver.Inspector      = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.FenceReserver  = (*Store)(nil)
)

// Over returns a store on lock tables that run an operation on any names in a single step. With
// nil, or a nil pointer, each store call returns driver.ErrInvalid.
func Over(t Tables) *Store {
	if driver.IsNil(t) {
		t = noTables{"kvstore.Over: the Tables are nil"}
	}
	return &Store{tables: t, groups: func(names []string) [][]string { return [][]string{names} }}
}

// over returns the store's tables. A zero Store contains none.
func (s *Store) over() Tables {
	if s.tables == nil {
		return noTables{"the store is a zero value: make it with a constructor, such as memstore.New, localstore.Open or kvstore.New"}
	}
	return s.tables
}

// Groups implements driver.Grouper.
func (s *Store) Groups(names []string) [][]string {
	if s.groups == nil {
		return [][]string{names}
	}
	return s.groups(names)
}

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.grant(ctx, acquire, r)
}

// Resize implements driver.Resizer.
func (s *Store) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.grant(ctx, resize, r)
}

func (s *Store) grant(ctx context.Context, v verb, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := driver.CheckAcquire(r); err != nil {
		return driver.AcquireReply{}, err
	}
	o := newOperation(v, r.Until)
	defer o.free()
	o.acquire = r
	if err := s.do(ctx, o); err != nil {
		return driver.AcquireReply{}, err
	}
	return o.reply, o.err
}

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	if err := driver.CheckFences(r); err != nil {
		return driver.FenceReply{}, err
	}
	o := newOperation(reserveFences, time.Time{})
	defer o.free()
	o.fences = r
	if err := s.do(ctx, o); err != nil {
		return driver.FenceReply{}, err
	}
	return o.reserved, nil
}

// Cancel implements driver.Store.
func (s *Store) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	o := newOperation(cancel, r.Until)
	defer o.free()
	o.acquire = r
	return s.do(ctx, o)
}

// Revoke implements driver.Revoker.
func (s *Store) Revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	if err := driver.CheckRevoke(r); err != nil {
		return false, err
	}
	o := newOperation(revoke, time.Time{})
	defer o.free()
	o.revoke = r
	err := s.do(ctx, o)
	return o.done && err == nil, err
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	o := newOperation(release, r.Until)
	defer o.free()
	o.release = r
	err := s.do(ctx, o)
	return o.done && err == nil, err
}

// Extend implements driver.Store.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	o := newOperation(extend, time.Time{})
	defer o.free()
	o.extend = requests
	if err := s.do(ctx, o); err != nil {
		return slices.Repeat([]error{err}, len(requests))
	}
	return o.errs
}

// NotifyWanted implements driver.WantedNotifier.
func (s *Store) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	if err := driver.CheckWanted(r); err != nil {
		return false, err
	}
	o := newOperation(notifyWanted, time.Time{})
	defer o.free()
	o.wanted = r
	err := s.do(ctx, o)
	return o.done && err == nil, err
}

// Inspect implements driver.Inspector.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	states, err := s.InspectAll(ctx, []string{name})
	if err != nil {
		return driver.State{}, err
	}
	if states[0].Foreign != nil {
		return driver.State{}, &driver.WrongTypeError{Op: string(inspect), Name: name, State: states[0]}
	}
	return states[0], nil
}

// InspectAll implements driver.Lister.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	o := newOperation(inspect, time.Time{})
	defer o.free()
	o.names = names
	if err := s.do(ctx, o); err != nil {
		return nil, err
	}
	return o.states, nil
}

// List implements driver.Lister.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	o := newOperation(list, time.Time{})
	defer o.free()
	o.pattern = pattern
	if err := s.do(ctx, o); err != nil {
		return nil, err
	}
	return o.listed, o.err
}

// Watch implements driver.Store.
func (s *Store) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	if busy == nil {
		busy = func() bool { return true }
	}
	return s.over().Watch(ctx, client, busy, on)
}

// do runs an operation whose request is valid.
func (s *Store) do(ctx context.Context, o *Operation) error {
	if err := locktable.Admit(ctx, o.Verb(), o.Name(), o.until, time.Now()); err != nil {
		return err
	}
	return o.wrap(s.over().Do(ctx, o))
}

// wrap returns an error from Tables as a store error.
func (o *Operation) wrap(err error) error {
	if err == nil || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	if state, ok := wrongTypeState(o.Name(), err); ok {
		return &driver.WrongTypeError{Op: o.Verb(), Name: o.Name(), State: state, Cause: err}
	}
	var wrong *wrongType
	return &driver.UnavailableError{Op: o.Verb(), Name: o.Name(), Cause: err, Refused: errors.As(err, &wrong)}
}
