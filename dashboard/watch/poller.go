// Package watch polls a store and finds the changes between two polls. It prints nothing.
package watch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// States are the store methods that a Poller calls.
type States interface {
	driver.Inspector
	driver.Lister
}

// A Poller reads names' states in a store. All methods are safe for concurrent use.
type Poller struct {
	Store   States
	Timeout time.Duration // for each request for states
}

// A Poll is the result of reading the names that match a glob.
type Poll struct {
	Began, Ended time.Time
	States       []driver.State // sorted by name, without free names
	Err          error          // why there are no states
	Rest         *Rest          // for a glob with many names; nil: States contains all names
}

// Names returns all names' summaries, sorted by name.
func (p Poll) Names() []view.Summary {
	if p.Rest != nil {
		return p.Rest.Names
	}
	return view.SummariesOf(p.States)
}

// Polls polls a glob again and again, and pauses for every between two polls. It continues after a
// failure, and ends with ctx. A poll interrupted by ctx is not yielded.
//
// A name found by a poll also belongs to the next poll, whether or not the store still lists it.
func (p Poller) Polls(ctx context.Context, glob string, every time.Duration) iter.Seq[Poll] {
	return func(yield func(Poll) bool) {
		p.run(ctx, newSeries(p, glob, nil), every, yield)
	}
}

// Sparse is like Polls, but if there are many names it reads only names with waiters and the names
// that shown returns, because they are on display. It counts the others less often.
func (p Poller) Sparse(ctx context.Context, glob string, every time.Duration, shown func() []string) iter.Seq[Poll] {
	return func(yield func(Poll) bool) {
		p.run(ctx, newSeries(p, glob, shown), every, yield)
	}
}

func (p Poller) run(ctx context.Context, s *series, every time.Duration, yield func(Poll) bool) {
	for ctx.Err() == nil {
		poll := s.next(ctx)
		if ctx.Err() != nil || !yield(poll) {
			return
		}
		sleep(ctx, every)
	}
}

// All reads names' states, sorted by name. It leaves out free names and keys other than locks.
func (p Poller) All(ctx context.Context, names []string) ([]driver.State, error) {
	return p.states(ctx, slices.Clone(names))
}

func namesOf(states []driver.State) []string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = s.Name
	}
	return names
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Inspect reads a single name's state. It returns ErrInvalid for a name that cannot be locked, and
// ErrWrongType if the key holds another value. A foreign lock whose type differs from dibs' locks
// is not an error: its state contains its owners. The state returned with an ErrWrongType describes
// the value, if the store could read it.
func (p Poller) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	state, err := p.Store.Inspect(ctx, name)
	var wrong *driver.WrongTypeError
	if !errors.As(err, &wrong) {
		return state, err
	}
	if f := wrong.State.Foreign; f != nil && f.Lock {
		return wrong.State, nil
	}
	return wrong.State, err
}

// Matching reads the states of all names that match a glob, sorted by name. It leaves out free
// names and keys other than locks.
func (p Poller) Matching(ctx context.Context, glob string) ([]driver.State, error) {
	names, err := (&lister{poller: p, glob: glob}).names(ctx)
	if err != nil {
		return nil, err
	}
	return p.states(ctx, names)
}

// states reads names' states, sorted by name, without keys other than locks. Each part of the names
// has its own timeout.
func (p Poller) states(ctx context.Context, names []string) (all []driver.State, err error) {
	const part = 1000
	slices.Sort(names)
	for names := range slices.Chunk(slices.Compact(names), part) {
		states, err := bounded(ctx, p.Timeout, "inspect", func(ctx context.Context) ([]driver.State, error) {
			return p.Store.InspectAll(ctx, names)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(states, isNoLock)...)
	}
	return all, nil
}

// isNoLock reports whether a name is not locked and has no waiters. A name that may not be read may
// be a lock. Without a prefix each key is a name, and most strings are data. With a prefix a string
// makes a dibs name unavailable, whatever it is.
func isNoLock(s driver.State) bool {
	data := s.Foreign != nil && !s.Foreign.Lock && s.Foreign.Key == s.Name
	return len(s.Holders) == 0 && s.Waiting == 0 && s.Err == nil || data
}

// bounded calls a store, and returns when the timeout ends even if the store does not: a client
// library can ignore its context while it connects. If the store panics, so does the caller.
func bounded[T any](ctx context.Context, timeout time.Duration, op string, call func(context.Context) (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done, panics := make(chan reply, 1), make(chan string, 1)
	go CatchPanic(panics, func() {
		value, err := call(ctx)
		done <- reply{value, err}
	})
	select {
	case r := <-done:
		return r.value, r.err
	case stack := <-panics:
		panic(stack)
	case <-ctx.Done():
		var none T
		return none, &driver.UnavailableError{Op: op, Cause: context.Cause(ctx)}
	}
}

// CatchPanic calls do. A panic is sent to panics with its stack, so that another goroutine can
// panic instead, and restore the terminal first.
func CatchPanic(panics chan<- string, do func()) {
	defer func() {
		if p := recover(); p != nil {
			panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	do()
}
