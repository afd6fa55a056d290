package renew

import (
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/lease"
)

// A batch contains the requests for a flight's leases.
type batch[H Holder] struct {
	leases   []H
	sent     time.Duration
	requests []driver.ExtendRequest
	first    []int           // the index of each lease's first request
	ttls     []time.Duration // each lease's TTL
	longest  time.Duration   // until the last deadline
}

// renew extends a flight's leases in a single store call. The call ends when no lease can need its
// answer any more.
func (s *Scheduler[H]) renew(f *flight[H]) {
	b := newBatch(f.leases, s.client.Identity(), s.clock.Check())
	errs, what := s.client.Extend(time.Now().Add(b.longest), b.requests)
	s.flights.remove(f)
	s.gate.End(&f.on, what)
	now := s.clock.Now()
	took, renewed, headroom := now-b.sent, 0, 1.0
	retryAt := b.retryAt(errs, now)
	for i := range b.leases {
		if share, ok := s.record(b, i, b.of(i, errs), retryAt); ok {
			renewed, headroom = renewed+1, min(headroom, share)
		}
	}
	if renewed > 0 {
		s.client.Renewed(renewed, took, headroom)
	}
}

func newBatch[H Holder](leases []H, client string, now time.Duration) *batch[H] {
	b := &batch[H]{
		leases: leases, sent: now, requests: make([]driver.ExtendRequest, 0, len(leases)),
		first: make([]int, len(leases)), ttls: make([]time.Duration, len(leases)), longest: lease.LeastRetry,
	}
	for i, h := range leases {
		state := h.LockState()
		b.first[i], b.ttls[i] = len(b.requests), state.Times.RenewalTTL(now)
		b.requests = state.AppendExtends(b.requests, client, b.ttls[i])
		b.longest = max(b.longest, state.Times.Deadline()-now)
		h.UnlockState()
	}
	return b
}

// of returns the i-th lease's results, one for each name.
func (b *batch[H]) of(i int, errs []error) []error {
	if i+1 < len(b.first) {
		return errs[b.first[i]:b.first[i+1]]
	}
	return errs[b.first[i]:]
}

// retryAt returns when the failed requests are sent again, together: when the first of them must
// be. It has jitter, because other clients failed at the same moment.
func (b *batch[H]) retryAt(errs []error, now time.Duration) time.Duration {
	at := clock.Never
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return at
	}
	name := ""
	for i, h := range b.leases {
		state := h.LockState()
		if i == 0 {
			name = state.Name
		}
		if _, err := state.Result(b.of(i, errs)); err != nil {
			at = min(at, state.Times.RetryAt(now))
		}
		h.UnlockState()
	}
	if at == clock.Never {
		return at
	}
	return now + time.Duration((0.75+clock.Jitter(name, now)/2)*float64(at-now))
}

// record records the outcome for the i-th lease. It reports whether the renewal succeeded, and with
// which headroom. errs are the results for its names. The lease itself reports its loss.
func (s *Scheduler[H]) record(b *batch[H], i int, errs []error, retryAt time.Duration) (headroom float64, ok bool) {
	h := b.leases[i]
	state := h.LockState()
	name, err := state.Result(errs)
	if errors.Is(err, driver.ErrLost) {
		state.Lose(lease.TakenEnd(name, err))
		h.Commit()
		s.suspectRest(b.sent)
		return 0, false
	}
	now := s.clock.Now()
	headroom = state.Times.Headroom(now)
	state.RecordRenewal(now, b.sent, b.ttls[i], len(errs), err, retryAt)
	switch held := h.Commit(); {
	case held && err != nil:
		h.RenewFailed()
	case held:
		h.Renewed()
		return headroom, true
	}
	return 0, false
}
