package dibs

import (
	"context"
	"errors"
)

// Yield lets other requests go first, between two parts of long work. Call it in the function of Do
// or Call, on the lease from LeaseOf. If another request waits for the lock, Yield releases it,
// joins the end of the wait queue, and returns when it holds the lock again. If nobody waits, Yield
// returns nil at once. The first call asks the store; later calls send nothing until a request
// waits.
//
//	lease, err := dibs.LeaseOf(ctx, "import")
//	…
//	err = lease.Yield(ctx, dibs.Wait(time.Minute))
//
// While Yield waits, the work does not hold the lock, so no other goroutine may rely on the lock.
// After Yield returned nil, the work's context is still valid. The context and the *Lease then
// refer to a new lease, with a new and larger fence. An earlier channel from Wanted belongs to the
// old lease: call Wanted again. The new lease is of the type that Do requested: after a Downgrade,
// Yield waits for a writer's lease again.
//
// Do's options apply again: Wait starts with this call, MaxHold with the new lease. Yield's options
// override Do's; invalid options are rejected before the release. Yield also stops waiting when ctx
// or the work's context ends. If ctx ended before the call, Yield returns ctx's cause.
//
// Yield returns ErrReentrant if a nested call (with Reentrant) uses the lease, and ErrInvalid in
// the cases below. In these cases, and if ctx ended before the call, nothing changes. After any
// other error the lock is no longer held: the work's context is ended, and the function must
// return. Do also returns this error. After the function returned, Yield in another goroutine
// returns ErrReleased.
//
// Yield returns ErrInvalid
//
//   - if an option is invalid, or another Yield of the lease is in progress,
//   - for a lease from Lock, because others may use its context: Unlock and Lock again,
//   - for an election's term: use Election.Resign,
//   - for Once and with MinHold: both reserve the name after a release, so nobody could go first.
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
	if wanted, _ := lease.IsWanted(ctx); !wanted { // without an answer, the next call asks again
		return nil
	}
	if err := carried.derived.keep(lease.l); err != nil {
		return err
	}
	return carried.replaceLease(ctx, set)
}

// errNoYield returns why Yield cannot replace the lease.
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

// beginYield returns an error if another Yield is in progress, or if the work ended.
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
		if !returns { // a hook panicked: neither lease is held
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
	work := carried.derived.Context // ends with the work
	defer context.AfterFunc(work, func() { cancel(context.Cause(work)) })()
	lease, err := carried.lock(within, set)
	returns = true
	if err != nil {
		return carried.fail(errors.Join(err, unlocked)) // if the lock is held again, it was released
	}
	return carried.carry(lease)
}

// carry puts a lease in the context, or unlocks it if the work ended.
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

// fail ends the context, because the lock is no longer held. Do also returns the error, unless the
// work ended before.
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
