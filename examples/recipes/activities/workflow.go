package activities

import (
	"time"

	"github.com/dibslock/dibs"
	"go.temporal.io/sdk/workflow"
)

// Order pays an order and waits until it may be changed again. Meanwhile nobody else works
// on the order.
func Order(ctx workflow.Context, order string, wait time.Duration) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Minute})
	return WithLock(ctx, "order:"+order, func(ctx workflow.Context, held dibs.Handle) error {
		var a *Activities
		if err := workflow.ExecuteActivity(ctx, a.Charge, held, order).Get(ctx, nil); err != nil {
			return err
		}
		return Sleep(ctx, held, wait)
	})
}

// WithLock runs do while the workflow holds a lock.
func WithLock(ctx workflow.Context, name string, do func(ctx workflow.Context, held dibs.Handle) error) error {
	var a *Activities
	var held dibs.Handle
	if err := workflow.ExecuteActivity(ctx, a.Acquire, name).Get(ctx, &held); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := workflow.NewDisconnectedContext(ctx) // a cancelled workflow also releases
		defer cancel()
		ctx = workflow.WithScheduleToCloseTimeout(ctx, ttl)
		if err := workflow.ExecuteActivity(ctx, a.Release, held).Get(ctx, nil); err != nil {
			workflow.GetLogger(ctx).Warn("the lock ends when its TTL has passed", "name", name, "error", err)
		}
	}()
	return do(ctx, held)
}

// Sleep waits, and keeps the lock meanwhile.
func Sleep(ctx workflow.Context, held dibs.Handle, d time.Duration) error {
	var a *Activities
	for ; d > 0; d -= ttl / 3 {
		if err := workflow.Sleep(ctx, min(d, ttl/3)); err != nil {
			return err
		}
		if err := workflow.ExecuteActivity(ctx, a.Extend, held).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}
