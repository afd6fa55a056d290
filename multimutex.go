package dibs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Set is several names that are held together or not at all. It holds no state,
// and is safe for concurrent use.
//
// Sets that overlap, in whatever order their names are given, never wait for each
// other in a circle. While a set waits it stands in the line of each of its names.
type MultiMutex struct {
	c     *Client
	names []string
}

// All returns the set of these names: at least one, at most MaxTogether, in any order;
// a name that is given twice counts once. It does no I/O; bad names are told by the
// calls that use it.
//
// Where the store can take all names in one step (memory, one Redis, one hash slot of
// a cluster), a set that waits holds nothing, and one whose process dies leaves
// nothing but places. On a cluster, names of several slots are taken slot after slot,
// in one order for all, and given back if the rest cannot be had.
func (c *Client) All(names ...string) *MultiMutex {
	names = slices.Clone(names)
	slices.Sort(names)
	return &MultiMutex{c: c, names: slices.Compact(names)}
}

// Lock takes all names in one lease, which is lost if one of them is; Lease.FenceOf
// tells the fence for each. All else is as with Mutex.Lock.
func (s *MultiMutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return s.acquire(ctx, options, queueing)
}

// TryLock takes all names if they are free and nobody is waiting for any of them, and
// returns ErrBusy at once if not.
func (s *MultiMutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return s.acquire(ctx, options, tryOnce)
}

// Do runs fn while holding all names, as Mutex.Do does. FenceOf(ctx, name) is the
// fence for one of them.
func (s *MultiMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, s.Lock, fn, options)
}

func (s *MultiMutex) acquire(ctx context.Context, options []Option, once bool) (*Lease, error) {
	if n := len(s.names); n == 0 || n > driver.MaxNames {
		return nil, invalid("a set of %d names: not within 1 to %d", n, driver.MaxNames)
	}
	set := s.c.defaults.with(options)
	groups := s.c.store.Groups(s.names)
	if len(groups) == 1 {
		return s.c.acquire(ctx, all(groups[0]), set, once)
	}
	// Of all names, before the first group is taken.
	if err := set.check(s.names[0], s.names[1:]...); err != nil {
		return nil, err
	}
	if err := set.checkOnce(s.names[0], once); err != nil {
		return nil, err
	}
	if h := leaseIn(ctx, s.c, all(s.names)); h != nil {
		return h.reenter(all(s.names), set.reentrant)
	}
	g := multiAcquire{c: s.c, groups: groups, settings: set, once: once}
	return g.acquire(ctx)
}

// all wants several names, each to itself.
func all(names []string) lockSpec {
	return lockSpec{name: names[0], with: names[1:], weight: 1, limit: 1}
}

// A gathering takes groups of names one after another, into one lease.
type multiAcquire struct {
	c        *Client
	groups   [][]string
	settings settings
	once     bool
}

func (g *multiAcquire) acquire(ctx context.Context) (*Lease, error) {
	begin := g.c.now()
	l, err := g.acquireWithRetries(ctx, begin)
	if err != nil {
		return nil, err
	}
	h := l.h
	h.callAcquiredHook(Acquired{Name: h.name, Token: h.token, Fence: l.Fence(), Waited: g.c.now() - begin})
	return l, nil
}

func (g *multiAcquire) acquireWithRetries(ctx context.Context, begin time.Duration) (*Lease, error) {
	if !g.c.beginJob() {
		return nil, ErrClosed
	}
	defer g.c.jobDone() // so that Close lets undo begin
	tries := 1
	if g.settings.attempts > 0 && !g.once {
		tries, g.once = g.settings.attempts, true
	}
	for i := 1; ; i++ {
		l, err := g.acquireGroups(ctx, begin)
		if err == nil {
			return l, nil
		}
		switch {
		case errors.Is(err, ErrLost):
			i-- // what it had was lost while it waited for the rest: from the start
		case i >= tries || refused(err) || permanent(err):
			return nil, err
		case !g.c.sleep(ctx, g.settings.every):
			return nil, g.ended(ctx, err)
		}
	}
}

// ended says why there is no further attempt.
func (g *multiAcquire) ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return ErrClosed
	}
	var busy *BusyError
	if errors.As(err, &busy) {
		busy.Cause = context.Cause(ctx)
		return busy
	}
	return &UnavailableError{Op: "acquire", Name: g.groups[0][0], Cause: errors.Join(context.Cause(ctx), rootCause(err))}
}

// gather takes all groups once, in order, or none. While it waits for the next one,
// what it has is renewed whatever the settings say: they are for the whole.
func (g *multiAcquire) acquireGroups(ctx context.Context, begin time.Duration) (*Lease, error) {
	c, set := g.c, g.settings
	if set.token == "" {
		set.token = newToken(c.id, set.label)
	}
	if set.maxHold > 0 {
		set.ttl = min(set.ttl, set.maxHold)
	}
	set.noRenew, set.maxHold, set.partOfMulti, set.hasWaitOption = false, 0, true, false
	var whole *leaseState
	for _, names := range g.groups {
		if g.settings.wait > 0 {
			set.wait = max(begin+g.settings.wait-c.now(), 0)
		}
		l, err := c.acquire(ctx, all(names), set, g.once)
		switch {
		case err == nil && whole == nil:
			whole = l.h
		case err == nil:
			err = whole.merge(l.h)
		}
		if err != nil {
			whole.cancel()
			return nil, err
		}
	}
	if err := whole.beginWhole(&g.settings); err != nil {
		whole.cancel()
		return nil, err
	}
	return &whole.first, nil
}

// absorb adds the names of another lease of the same token. If that, or h, is lost
// already it says so; then, too, undo gives all of them back.
func (h *leaseState) merge(o *leaseState) error {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	lost := o.err
	c.unschedule(o)
	delete(c.partlyLost, o) // h gives its names back
	o.ended = true
	h.moreNames = append(append(h.moreNames, fencedName{o.name, o.fence}), o.moreNames...)
	h.minHoldUntil = max(h.minHoldUntil, o.minHoldUntil)
	h.unanswered = h.unanswered.merge(o.unanswered)
	h.deadline, h.renewAt = min(h.deadline, o.deadline), min(h.renewAt, o.renewAt)
	if h.ended {
		return h.err
	}
	c.schedule(h)
	return lost
}

// settleDown begins the lease as a whole: from now on the user's settings count.
func (h *leaseState) beginWhole(set *settings) error {
	c := h.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.ended {
		return h.err
	}
	now := c.now()
	h.acquiredAt = now
	if set.minHold > 0 {
		h.minHoldUntil = now + set.minHold
	}
	if set.maxHold > 0 {
		h.maxHoldUntil = now + set.maxHold
		h.deadline = min(h.deadline, h.maxHoldUntil)
		h.maxHoldReached = h.deadline == h.maxHoldUntil
	}
	if set.noRenew {
		h.rule, h.renewAt = extendOnce, now
	}
	c.schedule(h)
	return nil
}

// undo ends a lease that was never given to anybody, and gives its names back in the
// background.
func (h *leaseState) cancel() {
	if h == nil {
		return
	}
	h.c.mu.Lock()
	h.endReleased()
	delete(h.c.partlyLost, h)
	claim := h.acquireRequest()
	h.c.mu.Unlock()
	h.c.cancel(claim, h.ownToken, time.Time{})
	h.cancelUnanswered()
}
