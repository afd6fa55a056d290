package acquire

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/work"
)

// There are two ways to remove a lease or a request from the store: release and cancel.
// Both continue in the background if the outcome is unknown, until nothing can be left.

// A Release is the release of a single name.
type Release struct {
	Request      driver.ReleaseRequest
	Values       context.Context // the store's client sees its values, such as a trace
	ReserveUntil time.Duration   // the name stays unavailable until then, on the client's clock; zero: free at once
}

// at returns the request as it is sent now.
func (r *Release) at(now time.Duration, until time.Time) driver.ReleaseRequest {
	request := r.Request
	request.Until, request.Reserve = until, max(r.ReserveUntil-now, 0)
	return request
}

// A ReleaseOutcome is a release's result.
type ReleaseOutcome struct {
	Released bool  // the store had the lease
	Unknown  bool  // a request without an answer may have released it
	Err      error // from the last request
}

// Release releases a name, with retries until by.
func (a *Acquirer) Release(r Release, by time.Time, cancelling *Cancellation) (o ReleaseOutcome) {
	ctx := work.Detach(a.Work.UntilEnd(), r.Values)
	o.Err = a.Retry(ctx, by, func(t Attempt) (err error) {
		o.Released, err = a.Store.Release(ctx, r.at(a.Clock.Now(), t.Until))
		if answer.MayArrive(err) {
			o.Unknown = true
			cancelling.Unanswered(t.Until)
		}
		return err
	})
	return o
}

// ReleaseLater releases a name in the background, with retries for as long as the store may keep it: life.
func (a *Acquirer) ReleaseLater(r Release, life time.Duration) {
	var cancelling *Cancellation
	if !r.Request.TokenEnds {
		cancelling = a.Cancelling([]string{r.Request.Name}, r.Request.Token)
	}
	a.retryUntilDone(r.Values, cancelling, life, func(ctx context.Context, until time.Time) (bool, error) {
		_, err := a.Store.Release(ctx, r.at(a.Clock.Now(), until))
		return err == nil, err
	})
}
