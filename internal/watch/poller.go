// Package watch polls a store and finds what has changed between two polls. It prints
// nothing.
package watch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Poller reads the states of names in a store. All methods are safe for concurrent use.
type Poller struct {
	Store   driver.Store
	Timeout time.Duration // of one request: the list of names, or the state of one name
}

// A Poll is the result of reading all names that match a glob.
type Poll struct {
	Began, Ended time.Time
	States       []driver.State // sorted by name, without free names
	Err          error          // why there are no states
}

// Polls polls a glob again and again, and pauses for every between two polls. It goes on
// after a failure, and ends with ctx. A poll that ctx interrupts is not yielded.
//
// A name that a poll has found belongs to the next poll too, whether or not the store
// still lists it.
func (p Poller) Polls(ctx context.Context, glob string, every time.Duration) iter.Seq[Poll] {
	return func(yield func(Poll) bool) {
		var known []string
		for ctx.Err() == nil {
			poll := Poll{Began: time.Now()}
			poll.States, poll.Err = p.matching(ctx, glob, known)
			poll.Ended = time.Now()
			if ctx.Err() != nil || !yield(poll) {
				return
			}
			if poll.Err == nil {
				known = namesOf(poll.States)
			}
			sleep(ctx, every)
		}
	}
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

// Inspect reads the state of one name. It returns ErrInvalid for a name that cannot be
// locked, and ErrWrongType if the key holds another value. A foreign lock of another type
// than a lock of dibs is no error: its state has its owners. The state that comes with an
// ErrWrongType describes the value, if the store could read it.
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

// Matching reads the states of all names that match a glob, sorted by name. It leaves out
// free names and keys that are not locks.
func (p Poller) Matching(ctx context.Context, glob string) ([]driver.State, error) {
	return p.matching(ctx, glob, nil)
}

// matching does the same for the names that match a glob, and those in others.
func (p Poller) matching(ctx context.Context, glob string, others []string) ([]driver.State, error) {
	names, err := p.names(ctx, glob)
	if err != nil {
		return nil, err
	}
	names = append(names, others...)
	slices.Sort(names)
	states, err := p.inspectAll(ctx, slices.Compact(names))
	return slices.DeleteFunc(states, isNoLock), err
}

// isNoLock reports whether a name is not locked and has no waiters. Without a prefix each
// key is a name, and most strings are data. With a prefix a string makes a name of dibs
// unavailable, whatever it is.
func isNoLock(s driver.State) bool {
	data := s.Foreign != nil && !s.Foreign.Lock && s.Foreign.Key == s.Name
	return len(s.Holders) == 0 && s.Waiting == 0 || data
}

// names lists the names that match a glob. A plain name is returned as it is, without a
// scan of the keyspace.
func (p Poller) names(ctx context.Context, glob string) ([]string, error) {
	if !strings.ContainsAny(glob, `*?[\`) {
		return []string{glob}, driver.CheckName(glob)
	}
	type listing struct {
		names []string
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	done, panics := make(chan listing, 1), make(chan string, 1)
	go CatchPanic(panics, func() {
		names, err := p.Store.List(ctx, glob)
		done <- listing{names, err}
	})
	select {
	case l := <-done:
		return l.names, l.err
	case stack := <-panics:
		panic(stack)
	case <-ctx.Done(): // a client library may ignore ctx while it connects
		return nil, &driver.UnavailableError{Op: "list", Name: glob, Cause: context.Cause(ctx)}
	}
}

// inspectAll reads the states of the names, 32 concurrently, so that they are close in
// time.
func (p Poller) inspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	const atOnce = 32
	states, errs := make([]driver.State, len(names)), make([]error, len(names))
	free, panics := make(chan struct{}, atOnce), make(chan string, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			CatchPanic(panics, func() { states[i], errs[i] = p.Inspect(ctx, name) })
		})
	}
	all.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, driver.ErrWrongType) {
			return nil, err
		}
	}
	return states, nil
}

// CatchPanic calls do. A panic is sent to panics with its stack, so that another goroutine
// can panic instead: one that restores the terminal first.
func CatchPanic(panics chan<- string, do func()) {
	defer func() {
		if p := recover(); p != nil {
			panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	do()
}
