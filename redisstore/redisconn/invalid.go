package redisconn

import (
	"context"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Invalid returns a Conn for clients that cannot hold locks: nil, or an unsupported kind. Each call
// returns driver.ErrInvalid with the reason why.
func Invalid(why string) Conn { return invalid{fmt.Errorf("%w: %s", driver.ErrInvalid, why)} }

type invalid struct{ err error }

// Traits implements Conn.
func (c invalid) Traits() Traits { return Traits{} }

// Do implements Conn.
func (c invalid) Do(_ context.Context, _ time.Time, _ []Cmd, replies []Reply) {
	for i := range replies {
		replies[i] = Reply{Err: c.err}
	}
}

// Subscribe implements Conn.
func (c invalid) Subscribe(ctx context.Context, _ string, _ func() bool, _ func(string)) error {
	<-ctx.Done()
	return c.err
}

// Replicate implements Conn.
func (c invalid) Replicate(_ context.Context, _ Cmd, _ Wait, answered func(Reply) bool) Reply {
	answered(Reply{Err: c.err})
	return Reply{Err: c.err}
}

// Masters implements Conn.
func (c invalid) Masters(context.Context, func(Node) error) error { return c.err }
