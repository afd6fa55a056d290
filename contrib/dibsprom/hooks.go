package dibsprom

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/observe/outcome"
)

// Hooks returns the hooks for a Client. Pass them to dibs.New in the option dibs.Observe. Call
// Hooks again for each Client, because the hooks store whether their Client is degraded (polls,
// because the store cannot notify it). If you pass the hooks to a lock or to a call instead, it
// returns dibs.ErrInvalid.
func (m *Metrics) Hooks() dibs.Hooks {
	var degraded atomic.Bool
	return dibs.Hooks{
		Queued:      m.observeQueued,
		AcquireEnd:  m.observeAcquireEnd,
		RenewFailed: m.observeRenewFailed,
		Lost:        m.observeLost,
		Released:    m.observeReleased,
		Renewed:     m.observeRenewed,
		Degraded: func(_ context.Context, e dibs.Degraded) {
			// The event of a beginning or of an end may have been dropped.
			switch now := e.Err != nil; {
			case degraded.Swap(now) == now:
			case now:
				m.degraded.Inc()
			default:
				m.degraded.Dec()
			}
		},
	}
}

func (m *Metrics) observeQueued(_ context.Context, e dibs.Queued) {
	m.classes.Of(e.Name()).waiting.Inc()
}

func (m *Metrics) observeAcquireEnd(ctx context.Context, e dibs.AcquireEnd) {
	s := m.classes.Of(e.Name())
	m.observe(ctx, m.acquireObserver(s, outcome.OfKind(e.Kind), outcome.OfCall(&e)), e.Waited.Seconds())
	if e.Queued {
		s.waiting.Dec()
	}
	if e.Err != nil {
		return
	}
	s.holding.Inc()
	if e.Handoff > 0 {
		m.handoff.Observe(e.Handoff.Seconds())
	}
}

func (m *Metrics) observeRenewFailed(_ context.Context, e dibs.RenewFailed) {
	m.classes.Of(e.Name()).renewFailed.Inc()
}

func (m *Metrics) observeLost(_ context.Context, e dibs.Lost) {
	s := m.classes.Of(e.Name())
	s.lost[outcome.OfReason(e.Reason)].Inc()
	m.observeEnd(s, e.Kind, outcome.Lost, e.Held)
}

func (m *Metrics) observeReleased(_ context.Context, e dibs.Released) {
	s := m.classes.Of(e.Name())
	how, why := outcome.OfRelease(e.Err)
	if how == outcome.Lost {
		s.lost[why].Inc()
	}
	m.observeEnd(s, e.Kind, how, e.Held)
}

// observeEnd records a lease's last event. An attached lease had no first event.
func (m *Metrics) observeEnd(s *series, k dibs.Kind, how outcome.End, after time.Duration) {
	m.heldObserver(s, outcome.OfKind(k), how).Observe(after.Seconds())
	if k != dibs.KindAttached {
		s.holding.Dec()
	}
}

func (m *Metrics) observeRenewed(_ context.Context, e dibs.Renewed) {
	m.renew.Observe(e.Took.Seconds())
	m.headroom.Observe(e.Headroom)
}
