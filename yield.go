package dibs

import (
	"context"
	"errors"
)

// Yield lets other requests go first, between two parts of a long work. It is called in the
// function of Do or Call, on the lease of LeaseOf. If another request waits for the lock, Yield
// releases it, joins the end of the wait queue, and returns when it holds the lock again.
// If none waits, Yield returns nil at once. The first call asks the store; later calls
// cost nothing until a request waits.
//
//	lease, err := dibs.LeaseOf(ctx, "import")
//	…
//	err = lease.Yield(ctx, dibs.Wait(time.Minute))
//
// The context of the work stays valid and carries the new lease, with a new and larger Fence. The
// Lease is then the new one. The channel of Wanted is that of the old lease: call Wanted again. While
// Yield waits, the work does not hold the lock: no other goroutine may rely on it. The new lease is
// what Do has requested: after a Downgrade, Yield waits for a writer's lease again.
//
// The options of Do apply to the new lease, each limit from its beginning. Those given to Yield
// are a nearer level, so they override the options of Do. They are checked before the release. Yield
// also stops waiting when ctx or the context of the work ends. A ctx that has ended before changes
// nothing: Yield returns its cause.
//
// Any other error means that the lock is not held any more, except ErrReentrant and ErrInvalid. The
// context of the work has then ended, and the function must return. Do returns the error as well.
// Yield returns ErrReentrant if a nested call uses the lease, and ErrReleased after the function
// has returned: a goroutine that outlives it holds nothing.
//
// Yield returns ErrInvalid if an option is invalid, or if another Yield of the lease is in progress.
// A lease of Lock cannot be yielded, because others may use its context: Unlock and Lock again. An
// election has Resign instead. Once and MinHold keep the name reserved after a release, so nobody
// could go first. All three are ErrInvalid.
func (handle *Lease) Yield(ctx context.Context, options ...Option) error {
	if handle.isZero() {
		return errNoLease
	}
	carried := handle.work
	if carried == nil || carried.lock == nil {
		return handle.errNoYield()
	}
	set := carried.base.with(atCall, carried.options).with(atYield, options)
	if err := set.check(handle.Name()); err != nil {
		return err
	}
	if err := carried.beginYield(); err != nil {
		return err
	}
	defer carried.endYield()
	lease := carried.current()
	if err := lease.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if lease.l.minHoldUntil() != 0 {
		return invalid("yield: %q has MinHold, which would keep it from the others after the release as well", lease.Name())
	}
	if wanted, _ := lease.IsWanted(ctx); !wanted { // without an answer the next call knows more
		return nil
	}
	if err := carried.derived.keep(lease.l); err != nil {
		return err
	}
	return carried.replaceLease(ctx, set)
}

// errNoYield returns why the lease is not that of a Do that can acquire another one.
func (handle *Lease) errNoYield() error {
	name, l := handle.Name(), handle.lease()
	switch {
	case l.termOf() != nil:
		return invalid("yield: the lease on %q is a term of an election: use Resign", name)
	case handle.work != nil:
		return invalid("yield: Once would keep %q reserved after the release, so nobody could go first", name)
	}
	return invalid("yield: the lease on %q is not that of Do: Unlock, and Lock again", name)
}

// beginYield returns an error if another Yield is in progress, or if the work has ended.
func (carried *carriedLease) beginYield() error {
	carried.mu.Lock()
	defer carried.mu.Unlock()
	switch {
	case carried.ended:
		return releasedError{carried.lease.Name()}
	case carried.yielding:
		return invalid("yield: %q: another Yield is in progress", carried.lease.Name())
	}
	carried.yielding = true
	return nil
}

func (carried *carriedLease) endYield() {
	carried.mu.Lock()
	defer carried.mu.Unlock()
	carried.yielding = false
}

// replaceLease releases the lease and acquires the lock again, with settings. If it fails,
// the context ends.
func (carried *carriedLease) replaceLease(ctx context.Context, set settings) error {
	old := carried.current()
	c := old.l.c
	c.acquiring.Add(1) // Shutdown waits until the lock is held again
	defer c.leaveAcquire()
	set.continues = true
	returns := false
	defer func() {
		if !returns { // a hook has panicked: neither lease is held
			_ = carried.fail(releasedError{old.Name()})
		}
	}()
	unlocked := old.Unlock()
	if errors.Is(unlocked, ErrLost) {
		returns = true
		return carried.fail(unlocked)
	}
	within, cancel := context.WithCancelCause(carried.Context)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	work := carried.derived.Context // ends when the work has ended
	defer context.AfterFunc(work, func() { cancel(context.Cause(work)) })()
	lease, err := carried.lock(within, set)
	returns = true
	if err != nil {
		return carried.fail(errors.Join(err, unlocked)) // if the lock is held again, it was released
	}
	return carried.carry(lease)
}

// carry makes a lease that of the context, or unlocks it if the work has ended.
func (carried *carriedLease) carry(lease *Lease) error {
	carried.mu.Lock()
	if carried.ended {
		carried.mu.Unlock()
		return errors.Join(releasedError{lease.Name()}, lease.Unlock())
	}
	carried.lease = lease
	ended := carried.derived.endWith(lease.l)
	carried.mu.Unlock()
	if ended != nil {
		carried.derived.cancel(ended)
	}
	return lease.Err()
}

// fail ends the context, because the lock is not held any more. Do returns the error, too,
// unless the work has ended before.
func (carried *carriedLease) fail(err error) error {
	carried.mu.Lock()
	if carried.ended {
		err = errors.Join(releasedError{carried.lease.Name()}, err)
	}
	carried.failed = err
	carried.mu.Unlock()
	carried.derived.cancel(err)
	return err
}
