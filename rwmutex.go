package dibs

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
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
	return &RWMutex{c: c, name: name, settings: c.settings(ofOthers, options)}
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
	return m.c.acquire(ctx, m.write(), set, queueing)
}

// TryLock acquires the lock for writing if it is free and no one waits for it. Otherwise
// it returns ErrBusy at once.
func (m *RWMutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.write(), m.settings.with(atCall, options), tryOnce)
}

// RLock acquires the lock shared, for reading, beside other readers. It queues behind a
// writer that already waits. Errors and limits are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.rlock(ctx, m.settings.with(atCall, options))
}

func (m *RWMutex) rlock(ctx context.Context, set settings) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), set, queueing)
}

// TryRLock acquires the lock for reading if no writer holds it and no one waits for it.
// Otherwise it returns ErrBusy at once.
func (m *RWMutex) TryRLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), m.settings.with(atCall, options), tryOnce)
}

// Do runs fn while holding the lock for writing, as Mutex.Do does.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, &m.settings, m.lock, fn, options)
}

// RDo runs fn while holding the lock for reading, as Mutex.Do does.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, &m.settings, m.rlock, fn, options)
}

// Reading returns the mutex as a Doer that holds the lock for reading, for Call and Wrap.
func (m *RWMutex) Reading() Doer { return reading{m} }

type reading struct{ m *RWMutex }

func (r reading) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return r.m.RDo(ctx, fn, options...)
}

// Downgrade makes a writer a reader; no other writer can hold the lock in between. The
// readers at the head of the queue enter with it. The lease then has a new and larger
// fence, which Fence(ctx) and Lease.Fence return from then on.
//
// Downgrade returns ErrLost if the lease is lost, ErrReentrant if a nested call uses the
// lease, and ErrUnavailable if the store does not answer. After ErrUnavailable the lease
// is held for writing or for reading, and Downgrade may be called again.
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
// it.
func (m *RWMutex) resize(ctx context.Context, lease *Lease, w lockSpec) (busy *BusyError, err error) {
	if lease == nil || lease.h == nil {
		return nil, invalid("no lease on %q", m.name)
	}
	h := lease.h
	if err := h.checkResize(m); err != nil {
		return nil, err
	}
	if err := h.checkExtendable(); err != nil {
		return nil, err
	}
	end := time.Now().Add(h.timeout())
	if err := h.awaitLateResize(ctx, w); err != nil {
		return nil, err
	}
	h.setResizing(1)
	defer h.setResizing(-1)
	reply, err := h.requestResize(ctx, end, w, 0)
	if err == nil && !reply.Held {
		busy = &BusyError{Name: m.name, Holder: reply.Holder, Remaining: reply.Remaining}
	}
	return busy, err
}

// requestResize asks the store for another weight of the lease, or for a new fence, and
// records the answer. least is a wish for the fence: see driver.AcquireRequest.
func (h *lease) requestResize(ctx context.Context, end time.Time, w lockSpec, least uint64) (driver.AcquireReply, error) {
	c := h.c
	var sent, ttl time.Duration
	var reply driver.AcquireReply
	err := c.retry(ctx, end, func(a attempt) (err error) {
		sent, ttl = a.sent, h.resizeTTL(a.sent)
		request := driver.AcquireRequest{
			Name: h.name, Token: h.token, Client: c.id, TTL: ttl, Weight: w.weight, Limit: w.limit, Until: a.until, MinFence: least,
		}
		reply, err = c.store.Resize(ctx, request)
		if !hasOutcome(err) {
			h.recordLateResize(w, a.until)
		}
		return err
	})
	if err != nil || !reply.Held {
		return reply, err
	}
	return reply, h.resized(w, reply.Fence, sent, ttl)
}

// setResizing counts the changes in progress: during a change, renewals leave out the
// weight of the lease.
func (h *lease) setResizing(by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resizing += int16(by)
}

// recordLateResize records that a change may still arrive at the store until then.
func (h *lease) recordLateResize(w lockSpec, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changeExtra().late = &lateResize{until.Add(clockSlack), w.weight}
}

// awaitLateResize waits until no earlier change to another weight, with an unknown
// outcome, can arrive after this one.
func (h *lease) awaitLateResize(ctx context.Context, w lockSpec) error {
	h.mu.Lock()
	var left time.Duration
	if late := h.extra().late; late != nil && late.weight != w.weight {
		left = time.Until(late.until)
	}
	h.mu.Unlock()
	if left > 0 && !pause(ctx, left) {
		return &UnavailableError{Op: "resize", Name: h.name, Cause: context.Cause(ctx)}
	}
	return nil
}

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
	switch {
	case h.c != m.c || h.name != m.name || len(h.extra().moreNames) > 0 || h.isLocal():
		return invalid("lease on %q is not one of RWMutex %q of this Client", h.name, m.name)
	case h.handles > 1:
		return errors.Join(ErrReentrant, invalid("lease on %q is shared by a nested call", h.name))
	}
	return nil
}

// resized records the new weight of the lease.
func (h *lease) resized(w lockSpec, fence uint64, sent, ttl time.Duration) error {
	h.mu.Lock()
	h.weight, h.limit, h.fence = int32(w.weight), int32(w.limit), fence
	ttlAfter := h.ttl
	h.mu.Unlock()
	return h.recordExtension(sent, ttl, ttlAfter)
}
