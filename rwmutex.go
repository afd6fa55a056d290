package dibs

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An RWMutex is a name that many readers or one writer may have. It holds no state,
// and is safe for concurrent use.
//
// It is strictly fair: who asks first is served first, so that neither side starves
// the other. Readers that stand next to each other in line enter together. Each
// reader has a lease of its own, and leaves by its own expiry if it dies.
//
// Its writer is the same as the holder of a Mutex of the name.
type RWMutex struct {
	c        *Client
	name     string
	settings settings
}

// RWMutex returns the read-write mutex of a name. It does no I/O; a bad name or
// option is told by the calls that use it.
func (c *Client) RWMutex(name string, options ...Option) *RWMutex {
	return &RWMutex{c: c, name: name, settings: c.defaults.with(options)}
}

func (m *RWMutex) write() lockSpec {
	return lockSpec{name: m.name, weight: driver.Unlimited, limit: driver.Unlimited}
}
func (m *RWMutex) read() lockSpec { return lockSpec{name: m.name, weight: 1, limit: driver.Unlimited} }

// Lock takes the name for writing: alone. All else is as with Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.write(), m.settings.with(options), queueing)
}

// TryLock takes the name for writing if nobody holds it or waits for it, and returns
// ErrBusy at once if not.
func (m *RWMutex) TryLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.write(), m.settings.with(options), tryOnce)
}

// RLock takes the name for reading: beside other readers, after a writer that waits
// already. All else is as with Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), m.settings.with(options), queueing)
}

// TryRLock takes the name for reading if no writer holds it or waits for it, and
// returns ErrBusy at once if not.
func (m *RWMutex) TryRLock(ctx context.Context, options ...Option) (*Lease, error) {
	return m.c.acquire(ctx, m.read(), m.settings.with(options), tryOnce)
}

// Do runs fn while holding the name for writing, as Mutex.Do does.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, m.Lock, fn, options)
}

// RDo runs fn while holding the name for reading, as Mutex.Do does.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return do(ctx, m.RLock, fn, options)
}

// Reading returns the mutex as a Doer that reads, for Call.
func (m *RWMutex) Reading() Doer { return reading{m} }

type reading struct{ m *RWMutex }

func (r reading) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return r.m.RDo(ctx, fn, options...)
}

// Downgrade makes a writer a reader, without letting another writer in between. The
// readers that wait at the head of the line enter with it. It returns ErrLost if the
// lease is lost, ErrReentrant if a nested call shares it, and ErrUnavailable if the
// store does not answer: the lease then holds for writing or for reading, and may be
// downgraded again.
func (m *RWMutex) Downgrade(ctx context.Context, lease *Lease) error {
	busy, err := m.resize(ctx, lease, m.read())
	if err == nil && busy != nil {
		return lease.h.lose(m.name, ReasonTaken, nil)
	}
	return err
}

// TryUpgrade makes a reader the writer if it is the only reader, and returns ErrBusy
// at once if not: to wait would be for ever if two readers did. It goes before those
// who wait, because nobody can have written since it began to read. The lease's fence
// is a new and larger one afterwards.
//
// On any error the lease goes on as a reader's. After ErrUnavailable the store may take
// it for a writer's, and keep readers out, until Unlock, Downgrade or another
// TryUpgrade.
func (m *RWMutex) TryUpgrade(ctx context.Context, lease *Lease) error {
	busy, err := m.resize(ctx, lease, m.write())
	if err == nil && busy != nil {
		return busy
	}
	return err
}

// reweigh changes how much a lease holds. busy says why it does not.
func (m *RWMutex) resize(ctx context.Context, lease *Lease, w lockSpec) (busy *BusyError, err error) {
	if lease == nil || lease.h == nil {
		return nil, invalid("no lease on %q", m.name)
	}
	h, c := lease.h, m.c
	if err := h.checkResize(m); err != nil {
		return nil, err
	}
	if err := h.checkExtendable(); err != nil {
		return nil, err
	}
	end := time.Now().Add(h.timeout)
	if err := h.awaitLateResize(ctx, w); err != nil {
		return nil, err
	}
	h.setResizing(1)
	defer h.setResizing(-1)
	for try := 0; ; try++ {
		sent := c.checkClock()
		ttl := h.resizeTTL(sent)
		claim := driver.AcquireRequest{Name: m.name, Token: h.token, Client: c.id, TTL: ttl, Weight: w.weight, Limit: w.limit, Until: c.rtt.attemptDeadline(end)}
		answer, err := c.store.Resize(ctx, claim)
		c.observeHealth(ctx, err)
		switch {
		case err == nil && answer.Held:
			return nil, h.resized(w, answer.Fence, sent, ttl)
		case err == nil:
			return &BusyError{Name: m.name, Holder: answer.Holder, Remaining: answer.Remaining}, nil
		case refused(err) || permanent(err):
			return nil, err
		}
		h.noteLateResize(w, claim.Until)
		if ctx.Err() != nil || !time.Now().Before(end) || !pause(ctx, backoff(try)) {
			return nil, err
		}
	}
}

// blur has renewals not tell the store what the lease weighs, while that changes.
func (h *leaseState) setResizing(by int) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.resizing += by
}

// unanswered notes that a change may still arrive at the store, until then.
func (h *leaseState) noteLateResize(w lockSpec, until time.Time) {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	h.lateResize, h.lateWeight = until.Add(clockSlack), w.weight
}

// awaitOther waits until no earlier change to another weight, whose outcome is
// unknown, can arrive after the one that is wanted now.
func (h *leaseState) awaitLateResize(ctx context.Context, w lockSpec) error {
	h.c.mu.Lock()
	left := time.Until(h.lateResize)
	if h.lateWeight == w.weight {
		left = 0
	}
	h.c.mu.Unlock()
	if left > 0 && !pause(ctx, left) {
		return &UnavailableError{Op: "reweigh", Name: h.name, Cause: context.Cause(ctx)}
	}
	return nil
}

// lift is the TTL that a change asks for: what a renewal would.
func (h *leaseState) resizeTTL(now time.Duration) time.Duration {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	return h.capTTL(now, h.renewalTTL(now))
}

// mayReweigh refuses leases of another name or client, and those that a nested call
// relies on.
func (h *leaseState) checkResize(m *RWMutex) error {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	switch {
	case h.c != m.c || h.name != m.name || len(h.moreNames) > 0:
		return invalid("lease on %q is not one of RWMutex %q of this Client", h.name, m.name)
	case h.handles > 1:
		return errors.Join(ErrReentrant, invalid("lease on %q is shared by a nested call", h.name))
	}
	return nil
}

// reweighed records what a lease holds now.
func (h *leaseState) resized(w lockSpec, fence uint64, sent, ttl time.Duration) error {
	h.c.mu.Lock()
	h.weight, h.limit, h.fence = w.weight, w.limit, fence
	keep := h.ttl
	h.c.mu.Unlock()
	return h.recordExtension(sent, ttl, keep)
}
