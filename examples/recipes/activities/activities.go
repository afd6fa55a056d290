// Package activities holds a lock for a Temporal workflow, across activities on several workers.
// Its code is in docs/recipes/temporal-activities.md.
package activities

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs"
	"go.temporal.io/sdk/temporal"
)

// ttl is how long the lock survives without an activity that extends it.
const ttl = 5 * time.Minute

// Activities has the activities of the workflow. Each of them may run on any worker.
type Activities struct {
	Locks *dibs.Client
	Pay   func(ctx context.Context, order string, fence uint64) error
}

// Acquire waits for the lock, and leaves it to the workflow, whose history contains the handle.
func (a *Activities) Acquire(ctx context.Context, name string) (dibs.Handle, error) {
	lease, err := a.Locks.Mutex(name).Lock(ctx, dibs.TTL(ttl), dibs.Wait(time.Minute))
	if err != nil {
		return dibs.Handle{}, err // Temporal tries again
	}
	if err := lease.Extend(ctx, ttl); err != nil { // after a hand-off, 5 s are left until then
		return dibs.Handle{}, errors.Join(err, lease.Unlock())
	}
	return lease.Handle(), lease.Detach() // from now on this worker neither renews nor releases it
}

// Charge is a step of the work.
func (a *Activities) Charge(ctx context.Context, held dibs.Handle, order string) error {
	return a.under(ctx, held, func(ctx context.Context, fence uint64) error {
		return a.Pay(ctx, order, fence)
	})
}

// Extend keeps the lock for another TTL while the workflow waits.
func (a *Activities) Extend(ctx context.Context, held dibs.Handle) error {
	return a.under(ctx, held, func(context.Context, uint64) error { return nil })
}

// Release releases the lock.
func (a *Activities) Release(ctx context.Context, held dibs.Handle) error {
	lease, err := a.Locks.Attach(ctx, held)
	if err == nil {
		err = lease.Unlock()
	}
	if errors.Is(err, dibs.ErrLost) {
		return nil // each step has checked the lock; or an earlier attempt has released it
	}
	return err
}

// under runs a step under the lock. The context of the step ends if the lock is lost.
// Meanwhile this worker renews the lock.
func (a *Activities) under(ctx context.Context, held dibs.Handle, step func(ctx context.Context, fence uint64) error) error {
	lease, err := a.Locks.Attach(ctx, held, dibs.TTL(ttl))
	if err != nil {
		return final(err)
	}
	defer lease.Detach()
	work, cancel := dibs.WithLease(ctx, lease)
	defer cancel()
	err = step(work, lease.Fence())
	if lost := lease.Err(); lost != nil {
		return final(errors.Join(lost, err))
	}
	return err
}

// final makes Temporal not repeat an activity whose lock is lost: the workflow must decide.
func final(err error) error {
	if errors.Is(err, dibs.ErrLost) {
		return temporal.NewNonRetryableApplicationError(err.Error(), "LockLost", err)
	}
	return err
}
