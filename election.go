package dibs

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An Election makes one of many processes the leader: it is a Mutex that one keeps,
// and the others wait for. A term is a lease, and its number is the lease's fence. It
// holds no state, and is safe for concurrent use.
type Election struct {
	c        *Client
	name     string
	settings settings
}

// A Leader is who leads, as the store sees it.
type Leader struct {
	Token     string // empty: nobody
	Label     string
	Term      uint64        // the fence; zero if the store was not told of it yet
	Remaining time.Duration // unless the leader renews
}

// Election returns the election of a name. It does no I/O; a bad name or option is
// told by the calls that use it.
func (c *Client) Election(name string, options ...Option) *Election {
	return &Election{c: c, name: name, settings: c.defaults.with(options)}
}

// Campaign waits until this process leads, and returns the term. Unlock resigns, and
// hands over to the next candidate at once. All else is as with Mutex.Lock.
func (e *Election) Campaign(ctx context.Context, options ...Option) (*Lease, error) {
	lease, err := e.c.acquire(ctx, exclusive(e.name), e.settings.with(options), queueing)
	if err == nil {
		e.c.beginTerm(lease.h) // so that the store can tell others the term's number
	}
	return lease, err
}

// Run campaigns until ctx ends, and runs fn as the leader, term after term. fn's
// context ends with ctx, or with the term: with cause ErrLost if it is lost, before
// anybody else can lead, and with ErrResigned after Resign. A term is given back only
// when fn has returned; Fence(ctx) is its number.
//
// After a term that was lost or resigned Run campaigns again, behind those who wait,
// 50 ms later. So it does when a campaign fails, because of the store or because Wait is
// over, with longer and longer pauses, up to 5 s (the hook Campaign tells). Run returns
//   - nil when fn returns nil in a term that was neither lost nor resigned,
//   - fn's error, unless the term or ctx has ended and it only says so,
//   - ctx's cause when ctx ends,
//   - at once ErrInvalid, ErrForeign, ErrReentrant or ErrClosed.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	if fn == nil {
		return errNoFunc
	}
	wait := shortest
	for {
		led, over, err := e.runTerm(ctx, fn, options)
		switch {
		case over:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case led:
			wait = shortest
		}
		e.callTermFailed(err, wait, options)
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
		if !led {
			wait = min(2*wait, longest)
		}
	}
}

// serve campaigns once, and serves the term. over says that Run returns err.
func (e *Election) runTerm(ctx context.Context, fn func(ctx context.Context) error, options []Option) (led, over bool, err error) {
	lease, err := e.Campaign(ctx, options...)
	if err != nil {
		again := errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBusy)
		return false, !again, err
	}
	var said error // by fn, without what giving the name back adds
	err = lease.run(ctx, func(ctx context.Context) error { said = fn(ctx); return said })
	switch {
	case said != nil && !onlyContextEnded(said):
		return true, true, err
	case lease.endedEarly() != nil || ctx.Err() != nil:
		return true, false, nil
	}
	return true, true, err
}

// stopped reports whether all that an error says is that its context has ended.
func onlyContextEnded(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it goes through what is wrapped by itself
	case nil:
		return false
	case *LostError:
		return true
	case *BusyError:
		return onlyContextEnded(e.Cause)
	case *UnavailableError:
		return onlyContextEnded(e.Cause)
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !onlyContextEnded(err) })
	case interface{ Unwrap() error }:
		return onlyContextEnded(e.Unwrap())
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, ErrResigned) || errors.Is(err, ErrLost)
}

// ended returns why a lease that is over was over before its work, or nil.
func (l *Lease) endedEarly() error {
	h := l.h
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	var lost *LostError
	if errors.As(h.err, &lost) {
		return h.err
	}
	return h.resigned
}

func (e *Election) callTermFailed(err error, again time.Duration, options []Option) {
	hooks := e.settings.with(options).hooks
	if err != nil && hooks != nil && hooks.Campaign != nil {
		hooks.Campaign(Campaign{Name: e.name, Again: again, Err: err})
	}
}

// Resign asks the term that this Client serves to end: the contexts of its lease end
// with cause ErrResigned, and when the work has returned the next candidate leads. It
// does not wait for that. It reports whether there was a term: a lease that Campaign or
// Run acquired, through any Election of this Client with this name.
func (e *Election) Resign() bool {
	c := e.c
	c.mu.Lock()
	var branches []*derivedContext
	led := false
	for _, h := range c.leases {
		if h.term && h.name == e.name {
			led = true
			branches = append(branches, h.resign(ErrResigned)...)
		}
	}
	c.mu.Unlock()
	for _, b := range branches {
		b.cancel(ErrResigned)
	}
	return led
}

// Leader returns who leads now, and a Leader without a token if nobody does.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	state, err := e.c.Inspect(ctx, e.name)
	if err != nil || len(state.Holders) == 0 || strings.HasSuffix(state.Holders[0].Token, driver.ReservedSuffix) {
		return Leader{}, err
	}
	h := state.Holders[0]
	return Leader{Token: h.Token, Label: h.Label, Term: h.Fence, Remaining: h.Remaining}, nil
}

// Observe tells who leads, and each change of it, until ctx ends or the loop is left:
//
//	for leader, err := range election.Observe(ctx) { … }
//
// It looks twice a second, so that a term shorter than that may go unseen. A Leader
// without a token says that nobody leads. An error says that the store cannot be
// asked; it is told once, and the next leader when the store is back.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	const every = 500 * time.Millisecond
	return func(yield func(Leader, error) bool) {
		var last Leader
		told, failing := false, false
		for ctx.Err() == nil {
			leader, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			news := err != nil && !failing || err == nil && (!told || failing || leader.Token != last.Token || leader.Term != last.Term)
			if err == nil {
				last, told = leader, true
			}
			failing = err != nil
			if news && !yield(leader, err) {
				return
			}
			pause(ctx, every)
		}
	}
}

// beginTerm marks a lease as the term of an election, and makes it due for renewal now.
func (c *Client) beginTerm(h *leaseState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.term = true
	if h.index >= 0 && h.rule == renewed {
		h.renewAt = c.now()
		c.schedule(h)
	}
}
