package dibsgocron

import (
	"context"
	"errors"

	"github.com/dibslock/dibs"
)

// runUnder runs fn in a context that ends with the job or with the lease, and that carries the lease.
func runUnder(job context.Context, lease *dibs.Lease, fn func(ctx context.Context) error) error {
	if err := lease.Err(); err != nil {
		return err
	}
	ctx, cancel := dibs.WithLease(job, lease)
	defer cancel()

	err := fn(ctx)
	if loss := lease.Err(); loss != nil && !errors.Is(err, loss) { // fn may return the cause of its context
		return errors.Join(err, loss)
	}
	return err
}
