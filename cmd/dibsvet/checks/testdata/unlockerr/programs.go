package unlockerr

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dibslock/dibs"
)

// Forms of programs that had another lock library before.

// withLock runs a function under a lock with the context of the caller.
func withLock(ctx context.Context, locks *dibs.Client, key string, f func(context.Context) error) error {
	lease, err := locks.Mutex(key).Lock(ctx, dibs.Wait(time.Second))
	if err != nil {
		return err
	}
	defer lease.Unlock() // want `nothing in this function notices the loss`
	return f(ctx)
}

// withLockOfLease gives it the context of the lease.
func withLockOfLease(ctx context.Context, locks *dibs.Client, key string, f func(context.Context) error) error {
	lease, err := locks.Mutex(key).Lock(ctx, dibs.Wait(time.Second))
	if err != nil {
		return err
	}
	defer lease.Unlock()
	return f(lease.Context())
}

// skipped is a job of which another instance has the run.
func skipped(ctx context.Context, locks *dibs.Client) error {
	lease, err := locks.Mutex("job").TryLock(ctx)
	if errors.Is(err, dibs.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		if err := lease.Unlock(); err != nil {
			slog.Error("unlock", "err", err)
		}
	}()
	return nil
}

// derived has a time limit for the work.
func derived(ctx context.Context, locks *dibs.Client, f func(context.Context) error) error {
	lease, err := locks.Mutex("job").TryLock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	ctx, cancel := context.WithTimeout(lease.Context(), time.Second)
	defer cancel()
	return f(ctx)
}
