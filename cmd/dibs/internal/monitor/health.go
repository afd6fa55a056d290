package monitor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// A health is a store's state, with a lock and a clock. It calls show with each report, in the
// order of the changes; show must not block.
type health struct {
	show func(Report)

	mu    sync.Mutex
	state state
}

// change changes the state and shows the report returned by do, unless it is nil.
func (h *health) change(do func(s *state, now time.Time) *Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := do(&h.state, time.Now()); r != nil {
		h.show(*r)
	}
}

// snapshot returns a copy of the state.
func (h *health) snapshot() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

func (h *health) everAnswered() bool {
	s := h.snapshot()
	return s.answers.any()
}

func (h *health) setRenewalSent(at time.Time) {
	h.change(func(s *state, _ time.Time) *Report {
		s.renewalSent = at
		return nil
	})
}

// record evaluates an operation's result. It ignores failures of operations that their caller
// cancelled, or that were sent before the last answer: they do not describe the store's current
// state.
func (h *health) record(ctx context.Context, sent time.Time, err error) {
	h.change(func(s *state, now time.Time) *Report {
		if !errors.Is(err, dibs.ErrUnavailable) {
			if s.answers.succeeded(now) {
				time.AfterFunc(notified, h.recheck) // by then notifications may also be back
			}
			return s.report(now)
		}
		if errors.Is(ctx.Err(), context.Canceled) || sent.Before(s.answers.last) {
			return nil
		}
		if s.answers.failed(sent, err) {
			time.AfterFunc(sent.Add(Delay).Sub(now), h.recheck)
		}
		return nil
	})
}

func (h *health) recheck() { h.change((*state).report) }
