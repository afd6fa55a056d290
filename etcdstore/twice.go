package etcdstore

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
)

// twice sends a request, and again if there is no reply in a part of the time. The etcd client sends
// each request to another member, and does not notice for long that one is stopped or cut off. The
// request should have the same effect twice as once.
func twice[R any](ctx context.Context, send func(context.Context) (R, error)) (R, error) {
	until, limited := endOf(ctx)
	if !limited {
		return send(ctx)
	}
	part, cancel := context.WithTimeout(ctx, min(time.Until(until)/4, driver.OperationTimeout/2))
	defer cancel()
	reply, err := send(hiddenDeadline{part})
	if err == nil || part.Err() == nil || ctx.Err() != nil {
		return reply, err
	}
	return send(ctx)
}
