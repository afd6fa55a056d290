package dibs

import (
	"context"
	"errors"
	"time"
)

// A localLease is a lease of one caller of a cohort. Its state has no deadline but the end of
// MaxHold, and is not renewed: the store lease is. It is one struct with what such a lease
// has beyond others, to save an allocation.
type localLease struct {
	lease
	space leaseExtra
}

// cohortLink is what the leases of a cohort have beyond others: store leases have no store.
type cohortLink struct {
	cohort *cohort
	store  *lease // the store lease of a local lease
	origin grantOrigin
}

// newLocalLease returns the lease of a call that was granted the lock. The end of MaxHold is
// not scheduled so far.
func newLocalLease(q *caller, origin grantOrigin, now time.Duration) *lease {
	local := &localLease{lease: lease{
		c: q.c, parent: q.parent, hooks: q.hooks.forLease(), handles: 1,
		leaseState: leaseState{
			name: q.co.key.name, token: q.store.token, fence: q.fence, weight: 1, limit: 1,
			ttl: q.co.key.ttl, rule: fixed, deadline: never, deadlineFrom: now, renewAt: never,
		},
	}}
	h := &local.lease
	h.first.h = h
	h.someExtra = &local.space
	local.space.cohortLink = cohortLink{cohort: q.co, store: q.store, origin: origin}
	if q.settings.timeout != q.c.defaults.timeout {
		local.space.timeout = q.settings.timeout
	}
	h.leaseState.beginWhole(now, 0, q.settings.maxHold, false)
	if q.hooks != nil {
		q.hooks.heldSince = now
	}
	return h
}

// isLocal reports whether the lease is a local one of a cohort.
func (s *leaseState) isLocal() bool { return s.someExtra != nil && s.someExtra.store != nil }

// cohortLink returns what only leases of cohorts have.
func (h *lease) cohortLink() cohortLink {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.someExtra == nil {
		return cohortLink{}
	}
	return h.someExtra.cohortLink
}

// storeLease returns the store lease of a local lease, or nil.
func (h *lease) storeLease() *lease { return h.cohortLink().store }

// joinCohort makes the lease the store lease of a cohort. It returns false if the lease has
// ended.
func (h *lease) joinCohort(co *cohort) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return false
	}
	h.changeExtra().cohort = co
	return true
}

// isHeld reports whether the lease is held at now. Unlike Err it does not end a lease whose
// deadline has passed.
func (h *lease) isHeld(now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err == nil && now < h.deadline
}

// until returns the deadline.
func (h *lease) until() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

// endWith ends a local lease whose store lease has ended.
func (h *lease) endWith(store *lease) {
	store.mu.Lock()
	err := store.err
	store.mu.Unlock()
	lost := &LostError{Reason: ReasonTaken}
	_ = errors.As(err, &lost)
	_ = h.update(func(s *leaseState) { s.lose(s.name, lost.Reason, lost.Cause, lost.Message) })
}

// endWithStoreLease ends a local lease if its store lease is over at now. Other leases have
// none.
func (h *lease) endWithStoreLease(store *lease, now time.Duration) {
	if store != nil && !store.isHeld(now) {
		_ = store.first.Err() // it ends the store lease
		h.endWith(store)
	}
}

// cohortError is the error of an operation that concerns one lease in the store, for a lease
// that the calls of a cohort share.
func cohortError(op, name string) error {
	return invalid("%s %q: the calls of a cohort share its lease: lock the name without Cohort", op, name)
}

// holder returns the lease whose hooks report on this one: itself, or for a store lease the
// local lease that holds the lock, if there is one.
func (h *lease) holder() *lease {
	if link := h.cohortLink(); link.cohort != nil && link.store == nil {
		if local := link.cohort.currentHolder(); local != nil {
			return local
		}
	}
	return h
}

// leaveCohort does in the cohort what follows from the end of a lease.
func (h *lease) leaveCohort(lost bool) {
	switch link := h.cohortLink(); {
	case link.cohort == nil:
	case link.store == nil:
		link.cohort.storeEnded(h)
	case lost:
		link.cohort.localEnded(h, link.store)
	}
}

// extendStoreLease extends the store lease of a local lease.
func (h *lease) extendStoreLease(ctx context.Context, link cohortLink, d time.Duration) error {
	err := link.store.first.Extend(ctx, d)
	if err != nil {
		return err
	}
	link.cohort.setExtended()
	return h.first.Err()
}

// setTTL sets the TTL of the renewals after now.
func (h *lease) setTTL(now, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changeTTL(now, ttl)
}

// requestWanted asks the store, once for each store lease, to notify this client of waiters.
func (h *lease) requestWanted() {
	if _, isNew := h.wantedSignal(); isNew {
		h.registerWanted()
	}
}

// waiting reports whether another process waits for the store lease, whether the store has
// said that none does, or whether it is being asked. All are false if that is not known.
func (h *lease) waiting() (wanted, nobody, asking bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	signal := h.extra().wanted
	switch {
	case signal == nil:
	case signal.set:
		return true, false, false
	case signal.registering:
		return false, false, true
	default:
		return false, signal.answered, false
	}
	return false, false, false
}

// newFence returns a new fence of a store lease, if possible one that is at least least, and
// extends the lease.
func (h *lease) newFence(least uint64) (uint64, error) {
	ctx := detach(h.c.work.life, h.values())
	reply, err := h.requestResize(ctx, time.Now().Add(h.timeout()), exclusive(KindMutex, h.name), least)
	if err == nil && !reply.Held {
		err = h.lose(h.name, ReasonTaken, nil)
	}
	return reply.Fence, err
}

// An idleTimer ends the linger of a store lease. Each use of the lease would have to stop
// and start a timer. So the timer runs on, and checks when the last use was.
type idleTimer struct {
	since time.Duration
	timer *time.Timer
	set   bool
}

// begin starts the time at now. After linger it calls f.
func (i *idleTimer) begin(now, linger time.Duration, f func()) {
	i.since = now
	if !i.set {
		i.start(linger, f)
	}
}

func (i *idleTimer) start(d time.Duration, f func()) {
	i.set = true
	if i.timer == nil {
		i.timer = time.AfterFunc(d, f)
		return
	}
	i.timer.Reset(d)
}

// isOver reports whether an idle lease has lingered for long enough. Else it starts the
// timer again. It is called when the timer has fired.
func (i *idleTimer) isOver(idle bool, now, linger time.Duration, f func()) bool {
	i.set = false
	left := i.since + linger - now
	if idle && left > 0 {
		i.start(left, f)
	}
	return idle && left <= 0
}
