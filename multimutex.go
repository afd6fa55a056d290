package dibs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	leasestate "github.com/dibslock/dibs/internal/lease"
)

// A MultiMutex is a lock on several names, which are held together or not at all. The
// value holds no state, and is safe for concurrent use.
//
// MultiMutexes with common names never deadlock, whatever the order of their names. While
// a MultiMutex waits, it is in the wait queue of each of its names.
type MultiMutex struct {
	c     *Client
	names []string
}

// All returns the MultiMutex of these names: 1 to 100, in any order. A repeated name
// counts once. All does no I/O; bad names make the methods of the MultiMutex return
// ErrInvalid.
//
// If the store can acquire all names in one step (memory, one Redis server, one hash slot
// of a cluster), a waiting MultiMutex holds none of them. A crash of its process then
// leaves only queue entries. On a cluster, the names of several slots are acquired slot
// by slot, in an order that is the same for all clients. They are released if the rest
// cannot be acquired.
func (c *Client) All(names ...string) *MultiMutex {
	names = slices.Clone(names)
	slices.Sort(names)
	return &MultiMutex{c: c, names: slices.Compact(names)}
}

// Lock acquires all names in one lease. The whole lease is lost if one of the names is lost
// or revoked.
// Lease.FenceOf returns the fence of each name. Errors and limits are those of
// Mutex.Lock.
func (s *MultiMutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return s.lock(ctx, s.settings().with(atCall, options))
}

func (s *MultiMutex) lock(ctx context.Context, set settings) (*Lease, error) {
	return s.acquire(ctx, set, queueing)
}

// TryLock acquires all names if they are free and no one waits for any of them. Otherwise
// it returns ErrBusy at once.
func (s *MultiMutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return s.acquire(ctx, s.settings().with(atCall, options), tryOnce)
}

// Do runs fn while holding all names, as Mutex.Do does. FenceOf(ctx, name) returns the
// fence of one of them.
func (s *MultiMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	base := s.settings()
	return do(ctx, &base, s.lock, fn, options)
}

func (s *MultiMutex) settings() settings { return s.c.settings(ofLock, nil) }

func (s *MultiMutex) acquire(ctx context.Context, set settings, once bool) (*Lease, error) {
	if err := s.c.check(); err != nil {
		return nil, err
	}
	if n := len(s.names); n == 0 || n > driver.MaxNames {
		return nil, invalid("multi-lock on %d names: not within 1 to %d", n, driver.MaxNames)
	}
	groups := s.c.store.Groups(s.names)
	if len(groups) == 1 {
		return s.c.acquire(ctx, all(groups[0]), set, once)
	}
	// Validate all names before the first group is acquired.
	if err := cmp.Or(set.check(s.names[0], s.names[1:]...), set.checkOnce(s.names[0], once)); err != nil {
		return nil, err
	}
	if h := leaseIn(ctx, s.c, all(s.names)); h != nil {
		return h.reenter(all(s.names), set.reentrant)
	}
	acquire := func(set settings) (*Lease, error) {
		g := multiAcquire{c: s.c, groups: groups, settings: set, once: once}
		return g.acquire(ctx)
	}
	if set.choosesToken() {
		return s.c.acquireOwn(s.names, set, acquire)
	}
	return acquire(set)
}

// all requests several names, each exclusively.
func all(names []string) lockSpec {
	return lockSpec{kind: KindMulti, name: names[0], with: names[1:], weight: 1, limit: 1}
}

// A multiAcquire acquires groups of names one after another, into one lease.
type multiAcquire struct {
	c        *Client
	groups   [][]string
	settings settings
	once     bool
}

func (g *multiAcquire) acquire(ctx context.Context) (*Lease, error) {
	begin := g.c.clock.Now()
	hooks := startHooks(ctx, all(slices.Concat(g.groups...)), &g.settings, g.once)
	if hooks == nil {
		return g.acquireWithRetries(ctx, begin)
	}
	g.settings.hookCall = hooks
	l, err := g.acquireWithRetries(hooks.context(), begin)
	e := AcquireEnd{LockInfo: hooks.info, Err: err, Waited: g.c.clock.Now() - begin, Queued: hooks.queued}
	if l != nil {
		e.LockInfo, e.Fence, e.FirstFence, e.TTL = hooks.lockInfo(l.Token()), l.Fence(), l.Fence(), g.settings.ttl
	}
	hooks.callAcquireEnd(e, l)
	return l, err
}

func (g *multiAcquire) acquireWithRetries(ctx context.Context, begin time.Duration) (*Lease, error) {
	if !g.c.begin() {
		return nil, ErrClosed
	}
	defer g.c.work.Done() // so that cancel can start its background work before Close ends
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
			i-- // a part was lost while the call waited for the rest: start again
		case i >= tries || refused(err) || permanent(err):
			return nil, err
		case !g.c.sleep(ctx, g.settings.every):
			return nil, g.abortErr(ctx, err)
		}
	}
}

// abortErr returns why there is no further attempt.
func (g *multiAcquire) abortErr(ctx context.Context, err error) error {
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

// acquireGroups acquires all groups once, in order, or none. While it waits for the next
// group, it renews the names that it holds. The caller's NoRenew, MaxHold and so on apply
// to the whole lease only.
func (g *multiAcquire) acquireGroups(ctx context.Context, begin time.Duration) (*Lease, error) {
	c, set := g.c, g.settings
	if set.token == "" {
		set.token = newToken(c.id, all(g.groups[0]), set.label)
	}
	if set.maxHold > 0 {
		set.ttl = min(set.ttl, set.maxHold)
	}
	set.noRenew, set.maxHold = false, 0
	var combined *lease
	defer c.announcer.remove(g)
	for i, names := range g.groups {
		if !g.once {
			c.announceLater(g, g.groups[i+1:])
		}
		if g.settings.wait > 0 {
			set.wait = max(clock.Add(begin, g.settings.wait)-c.clock.Now(), 0)
		}
		l, err := c.acquireValid(ctx, all(names), set, g.once)
		switch {
		case err == nil && combined == nil:
			combined = l.h
		case err == nil:
			err = combined.merge(l.h)
		}
		if err != nil {
			combined.cancel()
			return nil, err
		}
	}
	if err := combined.beginWhole(&g.settings); err != nil {
		combined.cancel()
		return nil, err
	}
	return &combined.first, nil
}

// merge adds the names of another lease with the same token. It returns an error if that
// lease, or h, is lost already. The names belong to h even then, so that cancel releases
// all of them.
func (h *lease) merge(o *lease) error {
	s := o.Lock()
	lost, other := o.errLocked(), *s
	s.GiveAway()
	h.c.renewals.Remove(o)
	o.Unlock()
	h.c.partlyLost.remove(o) // h releases its names
	ended := h.update(func(s *leasestate.State) { s.Merge(&other) })
	return cmp.Or(ended, lost)
}

// beginWhole starts the lease as a whole: from now on the caller's settings apply.
func (h *lease) beginWhole(set *settings) error {
	now := h.c.clock.Now()
	return h.update(func(s *leasestate.State) {
		if s.Reason().IsEnd() {
			return
		}
		s.Times.BeginWhole(now, set.minHold, set.maxHold, set.noRenew)
		if h.hooks != nil {
			h.hooks.heldSince = now
		}
	})
}

// cancel ends a lease that no caller has received, and releases its names in the
// background.
func (h *lease) cancel() {
	if h == nil {
		return
	}
	_ = h.update((*leasestate.State).Release)
	h.c.partlyLost.remove(h)
	request := h.Lock().AcquireRequest(h.c.id, h.c.clock.Now())
	h.Unlock()
	h.c.cancel(h.values(), request, h.ownToken, time.Time{})
	h.cancelUnanswered()
}
