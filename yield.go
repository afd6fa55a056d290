package dibs

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Yield lets other requests go first, between two parts of a long work. It is called in the
// function of Do or Call, with its context. If another request waits for the lock, Yield
// releases it, joins the end of the wait queue, and returns when it holds the lock again.
// If none waits, Yield returns nil at once. The first call asks the store; later calls
// cost nothing until a request waits.
//
// The context stays valid and carries the new lease, with a new and larger Fence. While
// Yield waits, the work does not hold the lock: no other goroutine may rely on it. The
// options of Do apply to the new lease, each limit from its beginning, and the options given
// to Yield override them. Yield also stops waiting when ctx ends.
//
// An error means that the lock is not held any more, except ErrReentrant. The context has
// then ended, and the function must return. Do returns the error, too. Yield returns
// ErrReentrant if a nested call uses the lease, and ErrInvalid if ctx is not a context of
// Do, or is used by another Yield. An election has Resign instead, and Once keeps its name
// reserved: both contexts are ErrInvalid.
func Yield(ctx context.Context, options ...Option) error {
	in := carriedIn(ctx)
	if in == nil || in.lock == nil {
		return invalid("yield: the context is not one that Do has passed to its function")
	}
	if !in.beginYield() {
		return invalid("yield: %q: another Yield with this context is in progress", in.current().Name())
	}
	defer in.endYield()
	lease := in.current()
	if err := lease.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !lease.h.isWanted(ctx) {
		return nil
	}
	if err := lease.h.keepContext(&in.derived); err != nil {
		return err
	}
	return in.replaceLease(ctx, options)
}

// beginYield returns false if another Yield is in progress.
func (in *carriedLease) beginYield() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.yielding {
		return false
	}
	in.yielding = true
	return true
}

func (in *carriedLease) endYield() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.yielding = false
}

// isWanted reports whether another request waits. The first call asks the store and waits
// for its answer. If there is none, the store is asked again in the background.
func (h *lease) isWanted(ctx context.Context) bool {
	signal, isNew := h.wantedSignal()
	if isNew {
		h.checkCallers()
	}
	if isNew && h.notifyWanted(detach(ctx, h.values())) != nil {
		h.registerWanted()
	}
	select {
	case <-signal.channel:
		return true
	default:
		return false
	}
}

// keepContext removes a context from the lease, so that it outlives a release.
func (h *lease) keepContext(b *derivedContext) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return h.err
	case h.handles > 1:
		return fmt.Errorf("%w: %q is used by a nested call", ErrReentrant, h.name)
	}
	h.contexts.remove(b)
	return nil
}

// replaceLease releases the lease and acquires the lock again. If it fails, the context
// ends.
func (in *carriedLease) replaceLease(ctx context.Context, options []Option) error {
	old := in.current()
	unlocked := old.Unlock()
	if errors.Is(unlocked, ErrLost) {
		return in.fail(unlocked)
	}
	within, cancel := context.WithCancelCause(in.Context)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	lease, err := in.lock(within, slices.Concat(in.options, options)...)
	if err != nil {
		return in.fail(errors.Join(err, unlocked)) // if the lock is held again, it was released
	}
	in.mu.Lock()
	in.lease = lease
	in.mu.Unlock()
	lease.h.addContext(&in.derived)
	return lease.Err()
}

// fail ends the context, because the lock is not held any more. Do returns the error, too.
func (in *carriedLease) fail(err error) error {
	in.mu.Lock()
	in.failed = err
	in.mu.Unlock()
	in.derived.cancel(err)
	return err
}

// yieldFailure returns the error of a Yield after which the lock is not held, or nil.
func (in *carriedLease) yieldFailure() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.failed
}
