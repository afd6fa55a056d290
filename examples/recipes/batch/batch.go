// Package batch holds a lock for a long time without delaying short requests. Its code is in
// docs/recipes/yielding-batch.md.
package batch

import (
	"context"

	"github.com/dibslock/dibs"
)

// Rebuild works on the catalogue in chunks. Between two chunks it lets other requests for the
// lock go first. A chunk reads its position from the database, and reports whether more
// chunks follow.
func Rebuild(ctx context.Context, locks *dibs.Client, chunk func(ctx context.Context, fence uint64) (more bool, err error)) error {
	return locks.Mutex("catalogue").Do(ctx, func(ctx context.Context) error {
		lease, err := dibs.LeaseOf(ctx, "catalogue")
		if err != nil {
			return err
		}
		for {
			more, err := chunk(ctx, lease.Fence()) // the fence is new after a Yield that waited
			if err != nil || !more {
				return err
			}
			if err := lease.Yield(ctx); err != nil {
				return err
			}
		}
	})
}

// Serve runs jobs on a device that only one process uses at a time. It keeps the lock while it has
// no job, and returns nil when another process wants the device.
func Serve(ctx context.Context, locks *dibs.Client, jobs <-chan func(ctx context.Context)) error {
	lease, err := locks.Mutex("device").Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	for {
		select {
		case job := <-jobs:
			job(lease.Context())
		case <-lease.Wanted():
			return nil
		case <-lease.Context().Done():
			return lease.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
