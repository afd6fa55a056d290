package history

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
)

// A group is a client's cohort for a name. It records the store lease, which its calls do not see.
type group struct {
	id     string // the client's id
	client *dibs.Client
	cohort *cohort.Cohort

	mu       sync.Mutex
	token    string // for the last store lease
	queuedBy string // label of the call that queued for it
}

// labelKey is the context key for a call's label.
type labelKey struct{}

func newGroup(c *dibs.Client, name string, batch int, linger time.Duration) *group {
	g := &group{client: c}
	granted := func(ctx context.Context, e dibs.AcquireEnd) {
		if e.Err != nil {
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.token = e.Token
		g.queuedBy, _ = ctx.Value(labelKey{}).(string)
	}
	g.cohort = cohort.New(c.Mutex(name, dibs.Observe(dibs.Hooks{AcquireEnd: granted})), batch, linger)
	return g
}

// storeLease returns the last store lease's token, and the label of the call that queued for it.
func (g *group) storeLease() (token, queuedBy string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.token, g.queuedBy
}

// acquireInCohort requests a lease from the cohort, works with it, and unlocks it.
func (w *worker) acquireInCohort(s step, op *Op) {
	g := w.ref.group(s.names[0], &w.plan)
	op.Cohort = g.id
	if w.plan.Instant {
		op.MostPasses = batchOf(w.ref.index)
	}
	var options []dibs.Option
	if s.waitMode == try {
		options = append(options, dibs.Wait(0))
	}
	ctx, options, cancel := w.limits(s, options)
	defer cancel()
	lease, err := g.cohort.Lock(context.WithValue(ctx, labelKey{}, op.Label), options...)
	w.rec.Return(op, err)
	if err != nil {
		return
	}
	op.Fences = []uint64{lease.Fence()}
	op.Token, op.QueuedBy = g.storeLease()
	a := activity{worker: w, client: g.client, lease: lease, acquire: op, step: s}
	a.work()
}
