package dibs

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver/guard"
)

// Yield lets other requests go first, between two parts of a long work. It is called in the
// function of Do or Call, with its context. If another request waits for the lock, Yield
// releases it, joins the end of the wait queue, and returns when it holds the lock again.
// If none waits, Yield returns nil at once. The first call asks the store; later calls
// cost nothing until a request waits.
//
// The context stays valid and carries the new lease, with a new and larger Fence. While
// Yield waits, the work does not hold the lock: no other goroutine may rely on it. The
// options of Do apply to the new lease, each limit from its beginning. Those given to Yield
// are a nearer level, so they override the options of Do. Yield also stops waiting when ctx
// ends.
//
// An error means that the lock is not held any more, except ErrReentrant and ErrInvalid. The
// context has then ended, and the function must return. Do returns the error, too. Yield
// returns ErrReentrant if a nested call uses the lease, and ErrReleased after the function
// has returned: a goroutine that outlives it holds nothing. It returns ErrInvalid if an
// option is invalid, or if ctx is not a context of Do, or is used by another Yield. An
// election has Resign instead. Once and MinHold keep the name reserved after a release, so
// nobody could go first. All three are ErrInvalid.
func Yield(ctx context.Context, options ...Option) error {
	in, _ := ctx.Value(guard.Key{}).(*carriedLease)
	if in == nil || in.lock == nil {
		return invalid("yield: the context is not one that Do has passed to its function")
	}
	set := in.base.with(atCall, in.options).with(atCall, options)
	if err := set.check(in.current().Name()); err != nil {
		return err
	}
	if err := in.beginYield(); err != nil {
		return err
	}
	defer in.endYield()
	lease := in.current()
	if err := lease.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if lease.h.minHoldUntil() != 0 {
		return invalid("yield: %q has MinHold, which would keep it from the others after the release, too", lease.Name())
	}
	if wanted, _ := lease.IsWanted(ctx); !wanted { // without an answer the next call knows more
		return nil
	}
	if err := in.derived.keep(lease.h); err != nil {
		return err
	}
	return in.replaceLease(ctx, set)
}

// beginYield returns an error if another Yield is in progress, or if the work has ended.
func (in *carriedLease) beginYield() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.ended:
		return releasedError{in.lease.Name()}
	case in.yielding:
		return invalid("yield: %q: another Yield with this context is in progress", in.lease.Name())
	}
	in.yielding = true
	return nil
}

func (in *carriedLease) endYield() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.yielding = false
}

// replaceLease releases the lease and acquires the lock again, with settings. If it fails,
// the context ends.
func (in *carriedLease) replaceLease(ctx context.Context, set settings) error {
	old := in.current()
	returns := false
	defer func() {
		if !returns { // a hook has panicked: neither lease is held
			_ = in.fail(releasedError{old.Name()})
		}
	}()
	unlocked := old.Unlock()
	if errors.Is(unlocked, ErrLost) {
		returns = true
		return in.fail(unlocked)
	}
	within, cancel := context.WithCancelCause(in.Context)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	work := in.derived.Context // ends when the work has ended
	defer context.AfterFunc(work, func() { cancel(context.Cause(work)) })()
	lease, err := in.lock(within, set)
	returns = true
	if err != nil {
		return in.fail(errors.Join(err, unlocked)) // if the lock is held again, it was released
	}
	return in.carry(lease)
}

// carry makes a lease that of the context, or unlocks it if the work has ended.
func (in *carriedLease) carry(lease *Lease) error {
	in.mu.Lock()
	if in.ended {
		in.mu.Unlock()
		return errors.Join(releasedError{lease.Name()}, lease.Unlock())
	}
	in.lease = lease
	ended := in.derived.endWith(lease.h)
	in.mu.Unlock()
	if ended != nil {
		in.derived.cancel(ended)
	}
	return lease.Err()
}

// fail ends the context, because the lock is not held any more. Do returns the error, too,
// unless the work has ended before.
func (in *carriedLease) fail(err error) error {
	in.mu.Lock()
	if in.ended {
		err = errors.Join(releasedError{in.lease.Name()}, err)
	}
	in.failed = err
	in.mu.Unlock()
	in.derived.cancel(err)
	return err
}
