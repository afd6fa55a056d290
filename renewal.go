package dibs

import (
	"context"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/load"
)

// A renewer is the renewal scheduler's view of a client. It implements renew.Client.
type renewer struct{ c *Client }

// Identity returns the client's identity.
func (r renewer) Identity() string { return r.c.id }

// Go runs a job in the background. It returns false if the client ended.
func (r renewer) Go(job func()) bool { return r.c.work.Run(func(context.Context) { job() }) }

// Extend sends a batch of renewals, to be answered before until. It returns the results, and an
// outcome for the store: a single answer shows that the store answers.
func (r renewer) Extend(until time.Time, requests []driver.ExtendRequest) (errs []error, what load.Outcome) {
	ctx := r.c.work.UntilClose()
	errs, what = r.c.store.Extend(ctx, until, requests), load.Dropped
	for _, err := range errs {
		switch one := answer.ForBudget(ctx, err, until); one {
		case load.Answered:
			return errs, one
		case load.Dropped:
		default:
			what = one
		}
	}
	return errs, what
}

// Renewed queues the Renewed hooks for a batch.
func (r renewer) Renewed(leases int, took time.Duration, headroom float64) {
	e := Renewed{Client: r.c.id, Leases: leases, Took: took, Headroom: headroom}
	r.c.defaults.hooks.each(func(hooks *Hooks) {
		if hooks.Renewed != nil {
			r.c.hooks.Add(false, func() { hooks.Renewed(context.Background(), e) })
		}
	})
}
