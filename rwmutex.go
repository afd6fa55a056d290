package dibs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/work"
)

// An RWMutex is a lock with many readers or one writer. The value holds no state, and is
// safe for concurrent use.
//
// It is strictly fair: readers and writers are served in the order of their requests, so
// neither side starves the other. Readers that are next to each other in the queue enter
// together. Each reader has a lease of its own, which expires if its process crashes.
//
// A writer is equivalent to the holder of a Mutex of the same name.
type RWMutex struct {
	c        *Client
	name     string
	settings settings
}

// RWMutex returns the read-write mutex of a name. It does no I/O. A bad name or option
// makes the methods of the RWMutex return ErrInvalid.
func (c *Client) RWMutex(name string, options ...Option) *RWMutex {
	return &RWMutex{c: c, name: name, settings: c.settings(ofLock, options)}
}

func (m *RWMutex) write() lockSpec {
	return lockSpec{kind: KindWriter, name: m.name, weight: driver.Unlimited, limit: driver.Unlimited}
}
func (m *RWMutex) read() lockSpec {
	return lockSpec{kind: KindReader, name: m.name, weight: 1, limit: driver.Unlimited}
}

// Lock acquires the lock exclusively, for writing. Errors and limits are those of
// Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.lock(ctx, m.settings.with(atCall, options))
}

func (m *RWMutex) lock(ctx context.Context, set settings) (*Lease, error) {
	return m.c.acquire(ctx, m.write(), set)
}

// TryLock acquires the lock for writing if it is free and no one waits for it. Otherwise
// it returns ErrBusy at once.
func (m *RWMutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.write(), m.settings.with(atCall, options).tryOnce())
}

// RLock acquires the lock shared, for reading, beside other readers. It queues behind a
// writer that already waits. Errors and limits are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.rlock(ctx, m.settings.with(atCall, options))
}

func (m *RWMutex) rlock(ctx context.Context, set settings) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), set)
}

// TryRLock acquires the lock for reading if no writer holds it and no one waits for it.
// Otherwise it returns ErrBusy at once.
func (m *RWMutex) TryRLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), m.settings.with(atCall, options).tryOnce())
}

// Do runs fn while holding the lock for writing, as Mutex.Do does.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, &m.settings, m.lock, fn, options)
}

// Reading returns the mutex as a Doer that holds the lock for reading:
//
//	err := locks.RWMutex("prices").Reading().Do(ctx, show)
func (m *RWMutex) Reading() Doer { return reading{m} }

type reading struct{ m *RWMutex }

func (r reading) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, &r.m.settings, r.m.rlock, fn, options)
}

// Downgrade makes a writer a reader; no other writer can hold the lock in between. The
// readers at the head of the queue enter with it. The lease then has a new and larger
// fence, which Fence(ctx) and Lease.Fence return from then on.
//
// Downgrade returns ErrLost if the lease is lost, ErrReentrant if a nested call uses the
// lease, and ErrUnavailable if the store does not answer. After an ErrUnavailable with an
// unknown outcome the lease is held for reading, although the store may keep other readers
// out. After any ErrUnavailable Downgrade may be called again. Concurrent changes of one lease
// are made one after another.
func (m *RWMutex) Downgrade(ctx context.Context, lease *Lease) error {
	busy, err := m.resize(ctx, lease, m.read())
	if err == nil && busy != nil {
		return lease.h.lose(m.name, ReasonTaken, nil)
	}
	return err
}

// TryUpgrade makes a reader the writer if it is the only reader. Otherwise it returns
// ErrBusy at once: two readers that waited for each other would wait for ever. The
// upgrade goes before the waiters, because nobody can have written since this reader
// began. The lease then has a new and larger fence.
//
// After any error the lease is still held for reading. After ErrUnavailable the store may
// keep other readers out until Unlock, Downgrade or another TryUpgrade.
func (m *RWMutex) TryUpgrade(ctx context.Context, lease *Lease) error {
	busy, err := m.resize(ctx, lease, m.write())
	if err == nil && busy != nil {
		return busy
	}
	return err
}

// resize changes the weight of a lease. A non-nil busy means that other holders prevent
// it. Changes of one lease are made one after another. Otherwise the reply that arrives last
// would count, whatever the store did last.
func (m *RWMutex) resize(ctx context.Context, lease *Lease, w lockSpec) (busy *BusyError, err error) {
	if lease.isZero() {
		return nil, invalid("no lease on %q", m.name)
	}
	h := lease.h
	if err := h.checkResize(m); err != nil {
		return nil, err
	}
	end := time.Now().Add(h.timeout())
	endTurn, err := h.awaitTurn(ctx, end)
	if err != nil {
		return nil, err
	}
	defer endTurn()
	if err := h.awaitLateResize(ctx, end, w); err != nil {
		return nil, err
	}
	if err := h.checkExtendable(); err != nil {
		return nil, err
	}
	before, err := h.beginResize(m, w)
	if err != nil {
		return nil, err
	}
	reply, err := h.requestResize(ctx, end, w)
	if !reply.Held {
		h.endResize(before, err)
	}
	if err == nil && !reply.Held {
		busy = &BusyError{Name: m.name, Holder: reply.Holder, Remaining: reply.Remaining}
	}
	return busy, err
}

// awaitTurn waits until no other resize of the lease is in progress. The caller calls done
// afterwards.
func (h *lease) awaitTurn(ctx context.Context, end time.Time) (done func(), err error) {
	turn := h.resizeTurn()
	done = func() { <-turn }
	select {
	case turn <- struct{}{}: // also if ctx has ended: the request says so
		return done, nil
	default:
	}
	limit := time.NewTimer(time.Until(end))
	defer limit.Stop()
	select {
	case turn <- struct{}{}:
		return done, nil
	case <-limit.C:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, &UnavailableError{Op: "resize", Name: h.name, Cause: fmt.Errorf("another change of the lease is in progress: %w", err)}
}

// resizeTurn returns a channel that has an element while a resize is in progress.
func (h *lease) resizeTurn() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.changeExtra()
	if x.resizeTurn == nil {
		x.resizeTurn = make(chan struct{}, 1)
	}
	return x.resizeTurn
}

// A heldWeight is the weight of a lease before a resize.
type heldWeight struct {
	weight, limit int32
	unsure        bool
	late          *lateResize
}

// beginResize begins a change of the weight, unless mayResize rejects it. A smaller weight
// counts at once: a nested call that needs the larger one must not enter, because the store
// may grant the difference to others before its reply arrives.
func (h *lease) beginResize(m *RWMutex, w lockSpec) (before heldWeight, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.mayResize(m); err != nil {
		return heldWeight{}, err
	}
	before = heldWeight{h.weight, h.limit, h.weightUnsure, h.extra().late}
	h.weightUnsure = true
	if w.weight < int(h.weight) {
		h.weight, h.limit = int32(w.weight), int32(w.limit)
	}
	return before, nil
}

// endResize ends a change of the weight that was not made, for all that is known. Without an
// answer, the lease has the smaller of the two weights: another change or Unlock follows.
func (h *lease) endResize(before heldWeight, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mayFollow := h.extra().late != before.late // an attempt of this change had no answer
	if err != nil && mayFollow {
		return
	}
	h.weight, h.limit, h.weightUnsure = before.weight, before.limit, before.unsure || mayFollow
}

// requestResize asks the store for another weight of the lease, and records the answer.
func (h *lease) requestResize(ctx context.Context, end time.Time, w lockSpec) (driver.AcquireReply, error) {
	c := h.c
	var sent, ttl time.Duration
	var reply driver.AcquireReply
	err := c.acquirer.Retry(ctx, end, func(a acquire.Attempt) (err error) {
		sent, ttl = a.Sent, h.resizeTTL(a.Sent)
		request := driver.AcquireRequest{
			Name: h.name, Token: h.token, Client: c.id, TTL: ttl, Weight: w.weight, Limit: w.limit, Until: a.Until,
		}
		before := h.recordLateResize(w, a.Until)
		reply, err = c.store.Resize(ctx, request)
		if answer.IsKnown(err) || answer.IsUnsent(err) {
			h.setLateResize(before)
		}
		return err
	})
	if err != nil || !reply.Held {
		return reply, err
	}
	return reply, h.resized(w, reply.Fence, sent, ttl)
}

// recordLateResize records that a change may arrive at the store until then. It returns what
// was recorded before.
func (h *lease) recordLateResize(w lockSpec, until time.Time) (before *lateResize) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = h.extra().late
	until = until.Add(clock.Slack)
	if before != nil {
		until = clock.Later(until, before.until)
	}
	h.changeExtra().late = &lateResize{until, w.weight}
	return before
}

func (h *lease) setLateResize(late *lateResize) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changeExtra().late = late
}

// awaitLateResize waits until no earlier change to another weight, with an unknown
// outcome, can arrive after this one.
func (h *lease) awaitLateResize(ctx context.Context, end time.Time, w lockSpec) error {
	late := h.readExtra().late
	if late == nil || late.weight == w.weight {
		return nil
	}
	wait := time.Until(late.until)
	left := time.Until(end)
	switch {
	case wait > 0 && !work.Pause(ctx, min(wait, left)):
		return &UnavailableError{Op: "resize", Name: h.name, Cause: context.Cause(ctx)}
	case wait > left:
		return &UnavailableError{Op: "resize", Name: h.name, Cause: errLateResize}
	}
	h.setLateResize(nil)
	return nil
}

var errLateResize = errors.New("an earlier change without an answer may still arrive: retry later")

// resizeTTL returns the TTL of a change: that of a renewal.
func (h *lease) resizeTTL(now time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.renewalTTL(now)
}

// checkResize rejects leases of another name or client, and those that a nested call
// uses.
func (h *lease) checkResize(m *RWMutex) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mayResize(m)
}

// mayResize is checkResize. The caller holds the lock.
func (h *lease) mayResize(m *RWMutex) error {
	switch {
	case h.c != m.c || h.name != m.name || len(h.extra().moreNames) > 0:
		return invalid("lease on %q is not one of RWMutex %q of this Client", h.name, m.name)
	case h.handles > 1:
		return errors.Join(ErrReentrant, invalid("lease on %q is shared by a nested call", h.name))
	}
	return nil
}

// resized records the answer to a resize: the weight, the fence, and the extension. A fence
// never decreases, whatever a store answers after it has lost data.
func (h *lease) resized(w lockSpec, fence uint64, sent, ttl time.Duration) error {
	h.mu.Lock()
	h.weight, h.limit, h.weightUnsure = int32(w.weight), int32(w.limit), false
	h.fence = max(h.fence, fence)
	ttlAfter := h.ttl
	h.mu.Unlock()
	return h.recordExtension(sent, ttl, ttlAfter)
}
