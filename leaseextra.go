package dibs

import "time"

// A leaseExtra is what only some leases have. It is apart from leaseState, because a
// process may hold a million leases.
type leaseExtra struct {
	moreNames    []fencedName   // further names, held together with the first
	minHoldUntil time.Duration  // end of MinHold, or zero
	maxHoldUntil time.Duration  // end of MaxHold, or zero
	onceFrom     time.Duration  // of extendOnce: the TTL of the one extension counts from here
	storedUntil  time.Duration  // a request with a longer TTL than the lease has may keep it in the store until then; or zero
	timeout      time.Duration  // of one operation; or zero: that of the client
	renewErr     error          // of the last renewal; nil if it succeeded
	resigned     error          // the work must end, though the lease is held
	late         *lateResize    // a change of the weight may still arrive at the store; or nil
	resizeTurn   chan struct{}  // has an element while the weight is changed; nil before the first change
	unanswered   *unansweredTry // unanswered acquires of this lease
	wanted       *wantedSignal  // of Lease.Wanted; nil if it was not called
	lastFence    uint64         // of those that ReserveFences has reserved; or zero
}

// A lateResize is a change of the weight that has no answer, so far or for ever.
type lateResize struct {
	until  time.Time // it may arrive at the store until then
	weight int
}

// extra returns a copy, for reading.
func (s *leaseState) extra() leaseExtra {
	if s.someExtra == nil {
		return leaseExtra{}
	}
	return *s.someExtra
}

// changeExtra returns the extra state, for changing it.
func (s *leaseState) changeExtra() *leaseExtra {
	if s.someExtra == nil {
		s.someExtra = new(leaseExtra)
	}
	return s.someExtra
}

// maxHoldUntil returns the end of MaxHold, or never.
func (s *leaseState) maxHoldUntil() time.Duration {
	if s.someExtra == nil || s.someExtra.maxHoldUntil == 0 {
		return never
	}
	return s.someExtra.maxHoldUntil
}

// setRenewErr records the error of the last renewal, or nil. A failure of the store, which
// concerns all leases, leaves nothing behind.
func (s *leaseState) setRenewErr(err error) {
	if err == nil && s.someExtra == nil {
		return
	}
	x := s.changeExtra()
	if x.renewErr = err; x.isEmpty() {
		s.someExtra = nil
	}
}

func (x *leaseExtra) isEmpty() bool {
	return len(x.moreNames) == 0 && x.minHoldUntil == 0 && x.maxHoldUntil == 0 && x.onceFrom == 0 && x.storedUntil == 0 &&
		x.timeout == 0 && x.renewErr == nil && x.resigned == nil && x.late == nil && x.resizeTurn == nil && x.unanswered == nil && x.wanted == nil && x.lastFence == 0
}
