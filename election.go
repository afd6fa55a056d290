package dibs

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"time"

	leasestate "github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/work"
)

// An Election makes one of many processes the leader. An Election is a Mutex: the leader holds it,
// and the other candidates wait for it. A term is the leader's lease, and the term's number is the
// lease's fence. Each Election value is a candidate: Resign ends only a term acquired with the same
// Election. An Election is safe for concurrent use.
type Election struct {
	c        *Client
	name     string
	settings settings
}

// A Leader describes the current leader according to the store.
type Leader struct {
	Token     Token // empty if there is no leader
	Label     string
	Term      uint64        // the fence; zero if the store does not return it
	Remaining time.Duration // until the term ends unless renewed; zero if it never expires

	NeverExpires bool // the leader is another library's lock, which lasts until released
}

// Election returns the election with this name. It does no I/O. With an invalid name or option, the
// Election's methods return ErrInvalid.
//
// A candidate waits until its context ends. The options Wait and Attempts given to New do not
// apply: give them to Election, Campaign or Run instead.
func (c *Client) Election(name string, options ...Option) *Election {
	return &Election{c: c, name: name, settings: c.settings(nil).withoutLimit().with(atLock, options)}
}

// Campaign waits until this process is the leader, and returns its term, which is a lease. To
// resign, call Unlock on the term: the next candidate then leads at once. Errors and limits are
// those of Mutex.Lock.
func (e *Election) Campaign(ctx context.Context, options ...Option) (*Lease, error) {
	lease, err := e.c.acquire(ctx, exclusive(KindElection, e.name), e.settings.with(atCall, options))
	if err == nil && lease == &lease.l.first { // otherwise the call reentered a lease
		e.beginTerm(lease.l) // so the store receives the term's number
	}
	return lease, err
}

// Run campaigns until ctx ends, and runs fn in each term. fn's context ends with ctx or with the
// term, and fn should then return. The cause is ErrResigned after Resign, and ErrLost if the term
// is lost: the context then ends before another process can lead. Run releases the term only after
// fn returns. Fence(ctx) returns the term's number.
//
// After a lost or resigned term, Run waits 50 ms and campaigns again, behind the other candidates.
// If a campaign fails because the store is unavailable or Wait passed, Run calls the hook
// TermFailed and campaigns again. After repeated failures its pauses grow to 5 s. Run returns
//
//   - nil when ctx ends or the Client shuts down, after fn returned,
//   - nil when fn returns nil in a term neither lost nor resigned,
//   - fn's error, unless the term or ctx ended and fn only reports this, for example with
//     context.Canceled,
//   - the error of a failed release, together with fn's error,
//   - ErrInvalid, ErrWrongType, ErrReentrant or ErrClosed from a campaign, at once.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	switch {
	case fn == nil:
		return errNoFunc
	case e.mustStop(context.Background()): // the Client shut down before the call
		return ErrClosed
	}
	wait := shortest
	for {
		led, done, err := e.runTerm(ctx, fn, options)
		switch {
		case done:
			return err
		case e.mustStop(ctx):
			return nil
		case led:
			wait = shortest
		}
		e.callTermFailed(ctx, err, wait, options)
		work.PauseUntil(ctx, e.c.work.UntilDrain(), wait)
		if !led {
			wait = min(2*wait, longest)
		}
	}
}

// mustStop reports whether ctx ended or the Client is shutting down.
func (e *Election) mustStop(ctx context.Context) bool {
	return ctx.Err() != nil || e.c.check() == nil && e.c.stopping.Load()
}

// runTerm campaigns once and serves the term. If done is true, Run returns err.
func (e *Election) runTerm(ctx context.Context, fn func(ctx context.Context) error, options []Option) (led, done bool, err error) {
	lease, err := e.Campaign(ctx, options...)
	switch {
	case err == nil:
	case e.mustStop(ctx) && (errors.Is(err, ErrClosed) || onlyEnded(err, context.Cause(ctx))):
		return false, false, nil
	default:
		retry := errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBusy)
		return false, !retry, err
	}
	work, unlocked := (&carriedLease{lease: lease}).run(ctx, fn)
	switch {
	case work != nil && !onlyEnded(work, context.Cause(ctx)):
		return true, true, joinUnlock(work, unlocked)
	case lease.endedEarly() != nil || ctx.Err() != nil:
		return true, false, nil
	}
	return true, true, joinUnlock(work, unlocked)
}

// joinUnlock joins the work's error with the lock's, unless the work returned its context's cause.
func joinUnlock(work, unlocked error) error {
	switch {
	case unlocked == nil || errors.Is(work, unlocked):
		return work
	case work == nil:
		return unlocked
	}
	return errors.Join(work, unlocked)
}

// onlyEnded reports whether an error only reports a context's end. cause is the context's cause, or
// nil.
func onlyEnded(err, cause error) bool {
	if cause != nil && reflect.TypeOf(cause).Comparable() && err == cause { //nolint:errorlint // only this error
		return true
	}
	switch e := err.(type) { //nolint:errorlint // the function unwraps the error itself
	case nil:
		return false
	case *LostError:
		return true
	case *BusyError:
		return onlyEnded(e.Cause, cause)
	case *UnavailableError:
		return onlyEnded(e.Cause, cause)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !onlyEnded(err, cause) })
	case interface{ Unwrap() error }:
		return onlyEnded(e.Unwrap(), cause)
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, ErrResigned) || errors.Is(err, ErrLost)
}

// endedEarly returns why the lease was lost or its work had to end, or nil.
func (handle *Lease) endedEarly() error {
	l := handle.lease()
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.readExtraLocked()
	if x.lost != nil {
		return x.lost
	}
	return x.resigned
}

func (e *Election) callTermFailed(ctx context.Context, err error, retryIn time.Duration, options []Option) {
	if err == nil {
		return
	}
	failed := TermFailed{Client: e.c.id, Name: e.name, RetryIn: retryIn, Err: err}
	e.settings.with(atCall, options).hooks.each(func(hooks *Hooks) {
		if hooks.TermFailed != nil {
			hooks.TermFailed(context.WithoutCancel(ctx), failed)
		}
	})
}

// Resign ends the contexts of the current term, if Campaign or Run on this Election acquired it.
// Their cause is ErrResigned. The next candidate leads after Run's function returns, or after
// Unlock of Campaign's lease; Resign waits for neither. Resign reports whether there was such a
// term.
func (e *Election) Resign() bool {
	if e.c.check() != nil {
		return false
	}
	led := false
	for _, l := range e.c.renewals.All() {
		if l.termOf() == e && resign(l) {
			led = true
		}
	}
	return led
}

// Leader returns the current leader, or a Leader with an empty token if there is none. It asks the
// store, and takes at most the Client's operation timeout. Errors are those of Client.Inspect.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := cmp.Or(e.c.check(), e.settings.check(e.name)); err != nil {
		return Leader{}, err
	}
	state, err := e.c.Inspect(ctx, e.name)
	if err != nil || len(state.Holders) == 0 || state.Holders[0].Reserved {
		return Leader{}, err
	}
	h := state.Holders[0]
	return Leader{Token: h.Token, Label: h.Label, Term: h.Fence, Remaining: h.Remaining, NeverExpires: h.NeverExpires}, nil
}

// Watch yields the current leader and each change, until ctx ends or the loop ends:
//
//	for leader, err := range election.Watch(ctx) { … }
//
// It reads the store every 500 ms, so it can miss a shorter term. A Leader with an empty token
// means no leader. If the store cannot be read, Watch yields the error once, and the next leader
// when the store is available again. It ends after ErrInvalid.
func (e *Election) Watch(ctx context.Context) iter.Seq2[Leader, error] {
	const every = 500 * time.Millisecond
	return func(yield func(Leader, error) bool) {
		var last Leader
		yielded, failing := false, false
		for ctx.Err() == nil {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			changed := err != nil && !failing || err == nil && (!yielded || failing || leader.Token != last.Token || leader.Term != last.Term)
			if err == nil {
				last, yielded = leader, true
			}
			failing = err != nil
			if changed && !yield(leader, err) || errors.Is(err, ErrInvalid) {
				return
			}
			work.Pause(ctx, every)
		}
	}
}

// beginTerm marks the lease as the election's term, and makes its renewal due now. If the client
// shuts down, the term starts resigned.
func (e *Election) beginTerm(l *lease) {
	now := e.c.clock.Now()
	_ = l.update(func(s *leasestate.State) {
		l.extraLocked().term = e
		s.Times.BeginTerm(now)
	})
	if e.c.stopping.Load() {
		resign(l)
	}
}

// termOf returns the election for a term, or nil.
func (l *lease) termOf() *Election {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readExtraLocked().term
}

// resign ends a term's contexts, present and future, but not the lease itself: the work must end
// first. It returns false if the lease is not a term.
func resign(l *lease) bool {
	l.mu.Lock()
	if l.readExtraLocked().term == nil || l.state.Reason().IsEnd() {
		l.mu.Unlock()
		return false
	}
	l.extra.resigned = ErrResigned
	contexts := l.contexts.removeAll()
	l.mu.Unlock()
	for _, derived := range contexts {
		derived.cancel(ErrResigned)
	}
	return true
}
