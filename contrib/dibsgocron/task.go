package dibsgocron

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver"
)

// runUnder runs fn in a context that ends with the job or with the lock, and that carries
// the lease. lost returns why the lease has ended, by the clock: the context may end a
// moment later.
func runUnder(job, lock context.Context, lost func() error, fn func(ctx context.Context) error) error {
	if err := lost(); err != nil {
		return err
	}
	lease := lock.Value(driver.CarrierKey{})
	ctx, cancel := context.WithCancelCause(context.WithValue(job, driver.CarrierKey{}, lease))
	defer cancel(context.Canceled)
	defer context.AfterFunc(lock, func() { cancel(context.Cause(lock)) })()

	err := fn(ctx)
	if loss := lost(); loss != nil && !errors.Is(err, loss) { // fn may return the cause of its context
		return errors.Join(err, loss)
	}
	return err
}
