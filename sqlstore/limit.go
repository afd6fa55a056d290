package sqlstore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/serverclock"
)

// ErrLate means that a request was void each time: the server's clock was past its limit.
var ErrLate = errors.New("the request arrived after its time limit")

// A Limit sends requests that become void after a time by the server's clock. It is safe for
// concurrent use.
type Limit struct{ Clock *serverclock.Clock }

// NewLimit returns a Limit without a reading of the server's clock.
func NewLimit() *Limit { return &Limit{serverclock.New()} }

// Send sends a request until the server has processed it, at most until a time or, if the time is
// zero, ctx's deadline. send gets the limit by the server's clock. It returns the server's time,
// and whether the request was void. A request is void if the server's time is not yet known; then
// it is sent again. It is also sent again after a repeatable error.
func (l *Limit) Send(ctx context.Context, until time.Time, send func(ctx context.Context, until int64) (at int64, void bool, err error), repeatable func(error) bool) error {
	if until.IsZero() {
		until = driver.DeadlineOf(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	const tries = 3
	err := ErrLate
	for range tries {
		sent := time.Now()
		var at int64
		var void bool
		at, void, err = send(ctx, l.Clock.Latest(until))
		switch {
		case err == nil:
			l.Clock.Learn(sent, time.Now(), at)
			if !void {
				return nil
			}
			err = ErrLate
		case !repeatable(err) || ctx.Err() != nil:
			return err
		}
	}
	return err
}

// Micros returns a duration in µs. It rounds up, so a lease lasts as long as requested.
func Micros(d time.Duration) int64 {
	if d <= 0 {
		return int64(d / time.Microsecond)
	}
	return int64((d-1)/time.Microsecond) + 1 // d may be the longest duration
}

// Duration returns the duration for a number of µs, or the longest duration.
func Duration(micros int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(micros, most)) * time.Microsecond
}
