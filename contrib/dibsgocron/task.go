package dibsgocron

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver/guard"
)

// runUnder runs fn in a context that ends with the job or with the lock, and that carries
// the lease of the lock's context. holds is Client.Holds.
func runUnder(job, lock context.Context, holds func(context.Context, string) error, name string, fn func(ctx context.Context) error) error {
	if err := holds(lock, name); err != nil {
		return err
	}
	lease := lock.Value(guard.Key{})
	ctx, cancel := context.WithCancelCause(context.WithValue(job, guard.Key{}, lease))
	defer cancel(context.Canceled)
	defer context.AfterFunc(lock, func() { cancel(context.Cause(lock)) })()

	err := fn(ctx)
	if loss := holds(lock, name); loss != nil && !errors.Is(err, loss) { // fn may return the cause of its context
		return errors.Join(err, loss)
	}
	return err
}
