package dibs

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Cohort lets the calls of one Client for one Mutex share one lease in the store. It is for
// names that many goroutines of a few processes want: an unlock passes the lock to the next
// call of the same Client without any request. It is off by default.
//
// While another process waits, at most batch passes follow each other; then the lock is
// handed off. So the lock is FIFO within a process, and a waiter of another process waits for
// at most batch+1 critical sections of each process before it: see docs/guarantees.md. While
// none waits, passes go on, and the lock is released at least once a second. batch is from 1
// to 1,000,000; zero turns cohorts off.
//
// With linger, an unlocked lease stays in the store for that long, so that the next call of
// this Client needs no request. It is released at once when another process waits for it. A
// Try call elsewhere finds the name busy, and a crash blocks it for one TTL. linger is from
// 1 ms to a third of the TTL; zero releases the lock with the last Unlock.
//
// Each call still gets a Lease of its own, with its own fence, context, MaxHold and hooks.
// All of them have the token of the lease in the store. So Detach, Attach, Yield and the guards
// of databases reject them with ErrInvalid, and Wanted returns nil. If that is lost, the one that holds
// it at that moment is lost. A lease that was lost is never passed on.
//
// Cohort given to New applies to the calls of a Mutex that have neither Token, MinHold, NoRenew
// nor Attempts, with at most a third of their TTL as linger. Given to a Mutex or to a call, it
// is ErrInvalid beside one of these. Given to another lock it is ErrInvalid, too.
func Cohort(batch int, linger time.Duration) Option {
	return func(s *settings) { s.batch, s.linger = batch, linger; s.now.add(cohortOption) }
}

const (
	maxCohortBatch = 1_000_000

	// longestTenure is how long a cohort keeps its store lease while it is in use, or for
	// linger if that is longer. Clients of other libraries are seen by nobody, and the
	// notification of a waiter may be lost.
	longestTenure = time.Second

	// fewFences is when a cohort asks for more fences if nobody else waits: enough for the
	// local passes of a round trip.
	fewFences = 128

	// fencesAtOnce is for how many fences it asks if its calls outrun the clock.
	fencesAtOnce = 1000
)

// A cohort is the calls of one Client that share one lease in the store, the store lease.
// Each of them gets a local lease, one after another. It is safe for concurrent use.
//
// A cohort calls methods of leases while it holds its lock, so no lease calls a cohort while
// it holds its own.
type cohort struct {
	c   *Client
	key cohortKey

	mu        sync.Mutex
	removed   bool          // a new cohort may exist under the key
	callers   callerList    // that wait, in order
	store     *lease        // the store lease; nil if there is none
	grantee   *caller       // it was granted the lock and has not received it so far
	holder    *lease        // the local lease that holds the lock; nil if none
	fences    fenceBlock    // of the store lease
	served    int           // local leases of the store lease so far
	contended bool          // others held the lock before, and probably wait for it
	left      int           // passes left while another process waits, or may wait
	since     time.Duration // when the store lease was granted
	origin    grantOrigin   // of the store lease; for the first local lease

	acquiring *acquireJob   // in progress, or nil
	pause     time.Duration // before the next one, after a failure
	releasing int           // store leases that are being released
	reserving bool          // a request for fences is in progress
	exhausted bool          // the store has issued no fence: the store lease must be released, not passed on
	extended  bool          // a local lease has changed the TTL of the store lease
	idle      idleTimer
}

// cohortKey is what the calls of a cohort have in common.
type cohortKey struct {
	name        string
	ttl, linger time.Duration
	batch       int
}

// grantOrigin is how a store lease was granted.
type grantOrigin struct {
	notified bool
	handoff  time.Duration
}

// cohorts are the cohorts of a client. The zero value is ready for use. It is safe for
// concurrent use.
type cohorts struct {
	mu    sync.Mutex
	byKey map[cohortKey]*cohort
}

// locked returns the cohort of a key, with its lock.
func (all *cohorts) locked(c *Client, key cohortKey) *cohort {
	for {
		co := all.get(c, key)
		co.mu.Lock()
		if !co.removed {
			return co
		}
		co.mu.Unlock()
	}
}

func (all *cohorts) get(c *Client, key cohortKey) *cohort {
	all.mu.Lock()
	defer all.mu.Unlock()
	co := all.byKey[key]
	if co == nil {
		co = &cohort{c: c, key: key}
		if all.byKey == nil {
			all.byKey = make(map[cohortKey]*cohort)
		}
		all.byKey[key] = co
	}
	return co
}

// includesToken reports whether one of the cohorts has a store lease with a token.
func (all *cohorts) includesToken(token string) bool {
	all.mu.Lock()
	every := slices.Collect(maps.Values(all.byKey))
	all.mu.Unlock()
	return slices.ContainsFunc(every, func(co *cohort) bool { return co.hasToken(token) })
}

func (all *cohorts) remove(key cohortKey) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.byKey, key)
}

// advance does what is due after each change: it grants the lock to the next caller, asks for
// the store lease or for fences, or lets the store lease linger. It returns a store lease
// that the caller must release, or nil. The caller holds the lock.
func (co *cohort) advance(now time.Duration) (release *lease) {
	if co.store != nil && !co.store.isHeld(now) {
		// It must be ended, not forgotten: a late answer could still extend it.
		return co.endTenure()
	}
	next := co.callers.first
	switch {
	case co.store == nil:
		if next != nil && co.acquiring == nil && co.releasing == 0 {
			co.startAcquire(next)
		}
	case co.holder != nil || co.grantee != nil:
		if next != nil {
			co.reserveFences()
		}
		return nil
	case co.mustRelease(now, next):
		return co.endTenure()
	case co.left == 0 && next != nil: // until the store has said whether another process waits
		return nil
	case next == nil:
		co.linger(now)
		return nil
	case co.fences.left() > 0:
		co.grant(next)
		return nil
	}
	if co.store == nil {
		co.removeIfUnused()
	} else {
		co.reserveFences()
	}
	return nil
}

// endTenure ends the use of the store lease, and returns it. The caller must release it. The
// next one is acquired after that: before it, the release would wait for the answer to the
// acquire.
func (co *cohort) endTenure() (release *lease) {
	release, co.store = co.store, nil
	co.releasing++
	return release
}

// release releases a store lease.
func (co *cohort) release(store *lease) error {
	err := store.first.Unlock()
	co.change(func() { co.releasing-- })
	return err
}

// releaseLater releases a store lease in the background, if there is one. The lease itself
// repeats a failed release, and no caller is left to receive the error.
func (co *cohort) releaseLater(store *lease) {
	if store == nil {
		return
	}
	ran := co.c.work.run(func(context.Context) { _ = co.release(store) })
	if !ran { // the client is closed, and has released it
		go co.change(func() { co.releasing-- })
	}
}

// change makes a change, and does what follows from it.
func (co *cohort) change(do func()) {
	co.mu.Lock()
	do()
	release := co.advance(co.c.clock.check())
	co.mu.Unlock()
	co.releaseLater(release)
}

// mustRelease reports whether a store lease that nobody holds must be released, and not be
// passed to the next caller, which may be nil.
func (co *cohort) mustRelease(now time.Duration, next *caller) bool {
	wanted, nobody, asking := co.store.waiting()
	switch {
	case next == nil && (wanted || co.key.linger == 0):
		return true
	case co.exhausted && co.fences.left() == 0, now-co.since >= max(longestTenure, co.key.linger):
		return true
	case nobody:
		co.left = co.key.batch
		return false
	}
	return co.left == 0 && next != nil && !asking
}

// grant makes a caller the grantee. The first local lease of a store lease is no pass.
func (co *cohort) grant(next *caller) {
	co.callers.remove(next)
	if co.served > 0 {
		co.left--
	}
	co.served++
	if co.extended {
		co.extended = false
		co.store.setTTL(co.c.clock.now(), co.key.ttl)
	}
	co.grantee = next
	next.fence, next.store = co.fences.next(), co.store
	next.signal()
	if co.callers.first != nil || co.key.linger > 0 {
		co.reserveFences()
	}
	if co.callers.first != nil && !co.contended {
		co.store.requestWanted()
	}
}

// linger keeps the store lease although nobody of this process wants it.
func (co *cohort) linger(now time.Duration) {
	co.store.requestWanted()
	if co.fences.left() == 0 {
		co.reserveFences()
	}
	co.idle.begin(now, co.key.linger, co.endLinger)
}

// endLinger releases a store lease that was not used for as long as it may linger. The timer
// calls it.
func (co *cohort) endLinger() {
	co.mu.Lock()
	var release *lease
	if co.idle.isOver(co.isIdle(), co.c.clock.check(), co.key.linger, co.endLinger) {
		release = co.endTenure()
	}
	co.mu.Unlock()
	co.releaseLater(release)
}

func (co *cohort) removeIfUnused() {
	if co.store == nil && co.isUnused() && co.acquiring == nil && co.releasing == 0 {
		co.removed = true
		co.c.cohorts.remove(co.key)
	}
}

// An acquireJob acquires the store lease of a cohort.
type acquireJob struct {
	call   call
	cancel context.CancelFunc
	queued bool                // the store has answered that the name is not free
	reply  driver.AcquireReply // the last such answer
	at     time.Duration       // when it arrived
}

// startAcquire acquires the store lease in the background, with the settings of a caller.
func (co *cohort) startAcquire(first *caller) {
	ctx, cancel := context.WithCancel(detach(co.c.work.life, first.ctx))
	job := &acquireJob{cancel: cancel}
	job.call = call{c: co.c, ctx: ctx, parent: ctx, settings: first.settings.forStoreLease(), begin: co.c.clock.now()}
	job.call.queued = func(reply driver.AcquireReply) { co.setQueued(job, reply) }
	co.acquiring = job
	wait := co.pause
	co.pause = 0
	ran := co.c.work.run(func(context.Context) {
		defer cancel()
		if wait > 0 {
			pause(ctx, wait)
		}
		lease, err := job.call.execute(exclusive(KindMutex, co.key.name))
		co.acquired(job, lease, err)
	})
	if !ran { // the client is closed, and so is every call
		cancel()
		co.acquiring = nil
	}
}

// forStoreLease returns the settings for the request of a store lease. Limits of the call
// and of its lease concern the local lease.
func (s settings) forStoreLease() settings {
	s = s.withoutLimit()
	s.maxHold, s.hooks = 0, nil
	return s
}

// setQueued records that the name is not free. It wakes only callers that do more than go on
// waiting: another process has just entered, and needs the processor.
func (co *cohort) setQueued(job *acquireJob, reply driver.AcquireReply) {
	co.mu.Lock()
	defer co.mu.Unlock()
	job.queued, job.reply, job.at = true, reply, co.c.clock.now()
	for q := co.callers.first; q != nil; q = q.next {
		q.contended = true
		if q.overdue || q.isTry() || q.hooks != nil && !q.hooks.queued {
			q.signal()
		}
	}
}

// acquired records the result of a job.
func (co *cohort) acquired(job *acquireJob, l *Lease, err error) {
	co.change(func() {
		co.acquiring = nil
		if l != nil && l.h.joinCohort(co) {
			co.beginTenure(job, l)
		}
		if err != nil && job.call.ctx.Err() == nil { // else the last caller has left, and another may have come
			co.fail(err)
		}
	})
}

// beginTenure makes the lease of a job the store lease.
func (co *cohort) beginTenure(job *acquireJob, l *Lease) {
	co.store, co.served, co.left, co.since = l.h, 0, co.key.batch, co.c.clock.now()
	co.fences, co.exhausted = newFenceBlock(l.Fence(), job.call.fences), false
	co.origin = grantOrigin{job.call.notified, job.call.handoff}
	co.contended = job.waitedForOthers()
}

// fail ends the calls that wait. An outage does not end those that have waited before, as in
// the queue of the store.
func (co *cohort) fail(err error) {
	outage := !permanent(err)
	for q := co.callers.first; q != nil; {
		next := q.next
		if !outage || !q.contended {
			co.callers.remove(q)
			q.err = err
			q.signal()
		}
		q = next
	}
	co.pause = 50 * time.Millisecond
}

// neededFences returns how many fences must be left for the next passes.
func (co *cohort) neededFences() uint64 {
	if _, nobody, _ := co.store.waiting(); !nobody && co.left < fewFences {
		return uint64(co.left)
	}
	return fewFences
}

// waitedForOthers reports whether the job had to wait for another process. Then others
// probably wait by now, and the cohort need not ask whether they do.
func (job *acquireJob) waitedForOthers() bool {
	own := strings.HasPrefix(job.reply.Holder, job.call.c.id+":") && job.reply.Position <= 1
	return job.queued && !own
}

// outrunsTheClock reports whether the calls have needed more than one fence for each µs. A new
// fence is about the time in µs, so it would not bring enough. Only then may fences run ahead
// of the server's clock.
func (co *cohort) outrunsTheClock() bool {
	return int64(co.served) > (co.c.clock.now()-co.since).Microseconds()+fewFences
}

// reserveFences asks the store in the background for more fences, if few are left. A resize
// to the same weight returns a new fence, and never acquires. So it may arrive late.
func (co *cohort) reserveFences() {
	if co.reserving || co.exhausted || co.store == nil || co.fences.left() >= co.neededFences() {
		return
	}
	store, least := co.store, uint64(0)
	if co.outrunsTheClock() {
		least = co.fences.end + fencesAtOnce
	}
	co.reserving = co.c.work.run(func(context.Context) {
		fence, err := store.newFence(least)
		co.change(func() {
			co.reserving = false
			switch {
			case co.store != store:
			case err == nil:
				co.fences.extend(fence)
			default:
				co.exhausted = true
			}
		})
	})
}

// unlock ends a local lease, and passes the lock on. If it releases the store lease, it
// returns the error of that.
func (co *cohort) unlock(local *lease, now time.Duration) error {
	co.mu.Lock()
	if co.holder == local {
		co.holder = nil
	}
	release := co.advance(now)
	co.mu.Unlock()
	if release == nil {
		return nil
	}
	return co.release(release)
}

// storeEnded ends the local lease that holds a store lease that has ended. A grantee that
// has not received the lock waits again, before all others.
func (co *cohort) storeEnded(store *lease) {
	var local *lease
	co.change(func() {
		if co.store == store {
			co.store = nil
		}
		if q := co.grantee; q != nil && q.store == store {
			co.grantee, q.store = nil, nil
			co.callers.addFirst(q)
		}
		if co.holder != nil && co.holder.storeLease() == store {
			local, co.holder = co.holder, nil
		}
	})
	if local != nil {
		local.endWith(store)
	} else {
		_ = store.first.Unlock() // if it was lost, the store may still have it
	}
}

// localEnded ends the store lease of a local lease that was lost by itself, such as after
// MaxHold. A lost lease is never passed on, so nobody else can use its token.
func (co *cohort) localEnded(local, store *lease) {
	lost := false
	co.change(func() {
		if lost = co.holder == local; !lost {
			return
		}
		co.holder = nil
		if co.store == store {
			co.store = nil
		}
	})
	if lost {
		co.c.work.run(func(context.Context) { _ = store.first.Unlock() })
	}
}

// wantedAnswered goes on when the store has said whether another process waits, or has not
// answered, and when another process begins to wait.
func (co *cohort) wantedAnswered() { co.change(func() {}) }

// hasToken reports whether the store lease has a token.
func (co *cohort) hasToken(token string) bool {
	co.mu.Lock()
	defer co.mu.Unlock()
	return co.store != nil && co.store.token == token
}

// isIdle reports whether the cohort has a store lease that nobody uses or waits for.
func (co *cohort) isIdle() bool { return co.store != nil && co.isUnused() }

// isUnused reports whether no call holds the lock or waits for it.
func (co *cohort) isUnused() bool {
	return co.holder == nil && co.grantee == nil && co.callers.first == nil
}

// removeCaller removes a call that has given up. Without callers, nobody wants the store
// lease.
func (co *cohort) removeCaller(q *caller) {
	co.callers.remove(q)
	if co.callers.first == nil && co.acquiring != nil {
		co.acquiring.cancel()
	}
}

// receive returns the local lease of a call that was granted the lock, or nil. If the store
// lease has ended in between, the call waits again, before all others.
func (co *cohort) receive(q *caller, now time.Duration) *lease {
	if co.grantee != q {
		return nil
	}
	co.grantee = nil
	if co.store != q.store || !co.store.isHeld(now) {
		co.callers.addFirst(q)
		q.store = nil
		co.releaseLater(co.advance(now))
		return nil
	}
	co.holder = newLocalLease(q, co.origin, now)
	co.origin = grantOrigin{}
	return co.holder
}

// isContended reports whether it is known that others hold the lock or wait for it.
func (co *cohort) isContended() bool {
	return co.store != nil || co.releasing > 0 || co.acquiring != nil && co.acquiring.queued
}

// isWaiting reports whether a call waits that knows that others held the lock, or was granted
// the lock and has not received it. The store may not know of it: a request for a store lease
// follows the release of the last one.
func (co *cohort) isWaiting() bool {
	q := co.callers.first
	for q != nil && !q.contended {
		q = q.next
	}
	return q != nil || co.grantee != nil
}

// busy returns the error of a call that may not wait.
func (co *cohort) busy(q *caller, cause error) *BusyError {
	e := &BusyError{Name: co.key.name, Cause: cause}
	if q.listed {
		e.Ahead = co.callers.before(q)
	}
	now := co.c.clock.now()
	switch job := co.acquiring; {
	case co.store != nil:
		e.Holder, e.Remaining = co.store.token, max(co.store.until()-now, 0)
	case job != nil && job.queued:
		e.Holder, e.Reserved, e.Remaining = job.reply.Holder, job.reply.Reserved, job.reply.Remaining
		if e.Remaining > 0 {
			e.Remaining = max(e.Remaining-(now-job.at), 0)
		}
		e.Ahead += max(job.reply.Position-1, 0)
	}
	return e
}

// setExtended records that a local lease has changed the TTL of the store lease, which
// counts for that local lease only.
func (co *cohort) setExtended() {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.extended = true
}

// currentHolder returns the local lease that holds the lock, or nil.
func (co *cohort) currentHolder() *lease {
	co.mu.Lock()
	defer co.mu.Unlock()
	return co.holder
}
