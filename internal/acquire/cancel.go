package acquire

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/load"
	"github.com/dibslock/dibs/internal/work"
)

// cancelGrace is how long after a TTL a cancel continues, for late requests.
const cancelGrace = time.Second

// Cancel cancels a request in the background. If unanswered is not zero, an unanswered try may
// arrive until then. So Cancel continues until then, and for as long as the store may keep the lock
// acquired by that try. values is the context of the call that sent the request. own means that the
// caller chose the token and may use it again.
func (a *Acquirer) Cancel(values context.Context, request driver.AcquireRequest, own bool, unanswered time.Time) {
	var cancelling *Cancellation
	if own {
		cancelling = a.Cancelling(request.Names(), request.Token)
	}
	stored := max(request.TTL, driver.WaiterTTL+request.HandoffTTL())
	life := clock.Add(stored, max(time.Until(unanswered), 0))
	a.retryUntilDone(values, cancelling, life, func(ctx context.Context, until time.Time) (bool, error) {
		last := !clock.MayArrive(unanswered)
		request := request
		request.Until = until
		err := a.Store.Cancel(ctx, request)
		return err == nil && last, err
	})
}

// A try is a request that is repeated in the background.
type try func(ctx context.Context, until time.Time) (done bool, err error)

// retryUntilDone runs tries in the background until a try is done or life is over. A renewal sent
// earlier may arrive within an operation timeout and make life longer. A hanging try does not delay
// the next, which may use another connection. The pauses grow with the elapsed time, and the budget
// limits the number in flight. The store's client sees a context's values, such as a trace.
func (a *Acquirer) retryUntilDone(values context.Context, cancelling *Cancellation, life time.Duration, do try) {
	const atOnce, soon, longest = 4, 400 * time.Millisecond, 5 * time.Second
	begin := a.Clock.Now()
	ran := a.Work.Run(func(ctx context.Context) {
		defer cancelling.End()
		ctx, done := context.WithTimeout(work.Detach(ctx, values), clock.Add(life, max(cancelGrace, a.Timeout)))
		defer done()
		var tries sync.WaitGroup
		defer tries.Wait()
		slots := make(chan struct{}, atOnce)
		for every := 50 * time.Millisecond; ctx.Err() == nil; every = min(every*3/2, max(soon, min((a.Clock.Now()-begin)/50, longest))) {
			select {
			case slots <- struct{}{}:
				tries.Go(func() {
					defer func() { <-slots }()
					if a.tryInBackground(ctx, cancelling, do) {
						done()
					}
				})
			default:
			}
			work.Pause(ctx, max(every, min(a.trip.Twice(), soon)))
		}
	})
	if !ran {
		cancelling.End()
	}
}

// tryInBackground makes a try when the budget permits. It reports whether no further try is needed.
func (a *Acquirer) tryInBackground(ctx context.Context, cancelling *Cancellation, do try) bool {
	on, err := a.Gate.Wait(ctx, load.Cleanup)
	if err != nil {
		return true
	}
	until := time.Now().Add(a.Timeout)
	done, err := do(ctx, until)
	a.Gate.End(&on, answer.ForBudget(ctx, err, until))
	if err != nil && !answer.IsRefusal(err) && !answer.IsUnsent(err) {
		cancelling.Unanswered(until)
	}
	return done || answer.IsPermanent(err)
}
