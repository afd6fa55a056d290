package dibs

import (
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A leaseState is what a client has recorded about one lease. Its methods are the
// transitions of the lease. They depend on the state and their arguments only: times are
// arguments, and what follows from a transition is done by the lease, which also has the
// lock. All times are in the time of the client's clock.
type leaseState struct {
	name      string
	token     string
	someExtra *leaseExtra // see extra; or nil
	fence     uint64
	weight    int32 // of limit
	limit     int32

	ttl          time.Duration
	deadline     time.Duration // the lease is lost at this time; zero if it is not confirmed
	deadlineFrom time.Duration // the request that set the deadline was sent at this time
	renewAt      time.Duration // time of the next renewal, or never
	err          error         // why the lease has ended, or is not confirmed

	// Side by side they share one word. A process may hold a million leases.
	rule           renewal
	renewing       bool
	ended          bool
	expiredLocally bool  // the clock ended it, not an answer of the store
	maxHoldReached bool  // MaxHold allows no further renewal
	recorded       uint8 // renewals left for which the store has the record of the fence
	weightUnsure   bool  // the store may have another weight
}

// A fencedName is one of several names that a lease holds, with its fence.
type fencedName struct {
	name  string
	fence uint64
}

// renewal is how a lease is renewed.
type renewal uint8

const (
	renewed    renewal = iota // again and again
	extendOnce                // once, from a short first TTL to its own TTL
	fixed                     // never
)

// margin returns how long before the server's expiry a lease counts as lost. It is 2 % of
// the TTL, for clocks of different rates and late timers, and at least 2 ms.
func margin(ttl time.Duration) time.Duration { return max(ttl/50, 2*time.Millisecond) }

// begin sets the times of a new lease at now. Its TTL began at sent or later. lift means
// that ttl is shorter than the requested TTL, as after a hand-off.
func (s *leaseState) begin(noRenew bool, now, sent, ttl time.Duration, lift bool) {
	s.rule = renewed
	if noRenew {
		s.rule = fixed
	}
	s.extend(sent, ttl)
	if lift || s.renewAt != never {
		// The first renewal is off the critical path, and short work needs none. After a
		// long wait sent is long ago, but that does not make the renewal urgent.
		s.renewAt = now + max(s.deadline-now, 0)/3
	}
	if noRenew && lift {
		s.beginOnce(sent)
	}
}

// beginOnce makes it a lease that is extended once, to its TTL from a time on.
func (s *leaseState) beginOnce(from time.Duration) {
	s.rule = extendOnce
	s.changeExtra().onceFrom = from
}

// limitHold sets the ends of MinHold and MaxHold, each from its own beginning. Zero is none.
func (s *leaseState) limitHold(minFrom, minHold, maxFrom, maxHold time.Duration) {
	if minHold > 0 {
		s.changeExtra().minHoldUntil = sum(minFrom, minHold)
	}
	if maxHold > 0 {
		s.changeExtra().maxHoldUntil = sum(maxFrom, maxHold)
	}
}

// beginWhole applies the settings of a multi-lock to a lease that now holds all its names.
func (s *leaseState) beginWhole(now, minHold, maxHold time.Duration, noRenew bool) {
	s.limitHold(now, minHold, now, maxHold)
	if maxHold > 0 {
		s.deadline = min(s.deadline, s.maxHoldUntil())
		s.maxHoldReached = s.deadline == s.maxHoldUntil()
	}
	if noRenew {
		s.beginOnce(now)
		s.renewAt = now
	}
}

// extend sets the deadline and the next renewal. The store has confirmed ttl for a request
// that was sent at sent.
func (s *leaseState) extend(sent, ttl time.Duration) {
	if end := sent + ttl - margin(ttl); end > s.deadline {
		s.deadline, s.deadlineFrom = end, sent
	}
	s.renewAt = never
	s.maxHoldReached = s.maxHoldReached || sent+ttl >= s.maxHoldUntil()
	if s.rule == renewed && !s.maxHoldReached {
		s.renewAt = sent + min(ttl, s.ttl)/3 // with MinHold, ttl may be longer than s.ttl
	}
}

// confirm records at now that the store has extended the lease by ttl, at the caller's
// request. Later renewals extend it by next.
func (s *leaseState) confirm(now, sent, ttl, next time.Duration) {
	s.err = nil
	s.setRenewErr(nil)
	if s.rule == extendOnce {
		s.rule = fixed // ttl includes the one extension
	}
	s.changeTTL(now, next)
	s.extend(sent, ttl)
}

// changeTTL sets the TTL of the renewals after now.
func (s *leaseState) changeTTL(now, ttl time.Duration) {
	before := s.ttl
	s.ttl, s.recorded = ttl, 0
	s.mayExtend(now, before) // an earlier renewal
}

// mayExtend records that a request may extend the lease by ttl until then. There is nothing
// to record unless that is more than a renewal does.
func (s *leaseState) mayExtend(until, ttl time.Duration) {
	if end := sum(until, ttl); ttl > s.ttl && end > s.extra().storedUntil {
		s.changeExtra().storedUntil = end
	}
}

// storedFor returns how long the store may keep the lease after now if no further request
// extends it. The deadline is no measure of that: it is earlier by the margin, and does not
// count an extension without an answer.
func (s *leaseState) storedFor(now time.Duration) time.Duration {
	x := s.extra()
	return max(s.ttl, x.minHoldUntil-now, x.storedUntil-now)
}

// recordRenewal records the outcome of a renewal of this many names, which was sent at sent.
// It is not ErrLost.
func (s *leaseState) recordRenewal(now, sent, ttl time.Duration, names int, err error) {
	s.renewing = false
	s.setRenewErr(err)
	switch {
	case err == nil && names <= len(s.extra().moreNames):
		s.renewAt = now // names were added during the renewal
	case err == nil:
		if s.rule == extendOnce {
			s.rule = fixed
		}
		s.extend(sent, ttl)
	default:
		s.recorded = 0 // the store may have lost it
		retryIn := min(s.ttl/20, (s.deadline-now)/4, 250*time.Millisecond)
		s.renewAt = now + max(retryIn, 10*time.Millisecond)
	}
}

// isRecorded reports whether the store still has the record of the fence at the renewal that is
// sent now. Else that one has it recorded, and the next renewals need not.
func (s *leaseState) isRecorded(ttl time.Duration) bool {
	const renewalsInTTL = 3
	if s.recorded > 0 {
		s.recorded--
		return true
	}
	s.recorded = uint8(renewalsInTTL * driver.RecordInterval(ttl) / ttl)
	return false
}

// nextAction returns the time of the next renewal, or of the deadline if that is earlier.
// A renewal may be sent early, to share a batch. One that has failed waits for its due
// time. Otherwise it would be repeated without a pause.
func (s *leaseState) nextAction() (at, early time.Duration) {
	switch {
	case s.renewing || s.deadline < s.renewAt:
		return s.deadline, 0
	case s.extra().renewErr != nil:
		return s.renewAt, 0
	default:
		return s.renewAt, min(renewWindow, s.ttl/10)
	}
}

// act ends the lease if its deadline has passed. It reports whether a renewal is to be sent
// now.
func (s *leaseState) act(now time.Duration) (renew bool) {
	at, early := s.nextAction()
	switch {
	case s.ended:
		return false
	case s.deadline <= now:
		s.expire()
		return false
	}
	renew = at == s.renewAt && at-early <= now
	s.renewing = s.renewing || renew
	return renew
}

// renewNow makes the lease due for renewal. With anew it does so even if a renewal is in
// progress.
func (s *leaseState) renewNow(now time.Duration, anew bool) {
	if s.isLocal() {
		return
	}
	s.renewing = s.renewing && !anew
	s.renewAt = now
	s.recorded = 0
}

// isOver reports whether the deadline has passed although nothing has ended the lease so
// far.
func (s *leaseState) isOver(now time.Duration) bool { return s.err == nil && now >= s.deadline }

// release ends the lease by its owner.
func (s *leaseState) release() {
	if s.ended {
		return
	}
	s.ended, s.err = true, releasedError{s.name}
}

// lose ends the lease, because name is lost. message is an operator's reason.
func (s *leaseState) lose(name string, why Reason, cause error, message string) {
	if s.ended {
		return
	}
	s.ended, s.err = true, &LostError{Name: name, Token: s.token, Reason: why, Cause: cause, Message: message}
}

// expire ends a lease whose deadline has passed.
func (s *leaseState) expire() {
	s.expiredLocally = true
	if s.maxHoldReached {
		s.lose(s.name, ReasonMaxHold, nil, "")
		return
	}
	s.lose(s.name, ReasonExpired, s.extra().renewErr, "")
}

// revoke ends the lease if one of its names was revoked. The fence shows that the
// revocation is not about an earlier lease with this token.
func (s *leaseState) revoke(fence uint64, message string) {
	for _, p := range s.names() {
		if p.fence <= fence {
			s.lose(p.name, ReasonRevoked, nil, message)
			return
		}
	}
}

// merge adds the names of another lease with the same token, which holds nothing
// afterwards.
func (s *leaseState) merge(o *leaseState) {
	x, other := s.changeExtra(), o.extra()
	x.moreNames = append(x.moreNames, o.names()...)
	x.minHoldUntil = max(x.minHoldUntil, other.minHoldUntil)
	x.storedUntil = max(x.storedUntil, other.storedUntil)
	x.unanswered = x.unanswered.merge(other.unanswered)
	s.deadline, s.renewAt = min(s.deadline, o.deadline), min(s.renewAt, o.renewAt)
	s.recorded = 0
}

// lostReason returns why the lease was lost. It returns false for a lease that is held or
// was released.
func (s *leaseState) lostReason() (Reason, bool) {
	if !s.ended || errors.Is(s.err, ErrReleased) {
		return "", false
	}
	var lost *LostError
	if errors.As(s.err, &lost) {
		return lost.Reason, true
	}
	return "", false
}

// mayRemainInStore reports whether the store may still have some of an ended lease. There
// are three cases: a late renewal succeeded, other names are left, or a minority of
// quorum nodes still has what the majority has lost.
func (s *leaseState) mayRemainInStore() bool {
	why, lost := s.lostReason()
	return s.expiredLocally || len(s.extra().moreNames) > 0 || lost && why == ReasonTaken
}

// names returns all names with their fences.
func (s *leaseState) names() []fencedName {
	return append([]fencedName{{s.name, s.fence}}, s.extra().moreNames...)
}

// holds reports whether the lease holds a name.
func (s *leaseState) holds(name string) bool {
	return name == s.name || slices.ContainsFunc(s.extra().moreNames, func(p fencedName) bool { return p.name == name })
}

// fenceOf returns the fence of a name, or zero.
func (s *leaseState) fenceOf(name string) uint64 {
	if name == s.name {
		return s.fence
	}
	for _, p := range s.extra().moreNames {
		if p.name == name {
			return p.fence
		}
	}
	return 0
}

// capTTL limits the TTL of a renewal that is sent now to the end of MaxHold.
func (s *leaseState) capTTL(now, ttl time.Duration) time.Duration {
	return max(min(ttl, s.maxHoldUntil()-now), time.Millisecond)
}

// renewalTTL returns the TTL of a renewal that is sent now.
func (s *leaseState) renewalTTL(now time.Duration) time.Duration {
	switch s.rule {
	case extendOnce:
		return s.capTTL(now, max(s.extra().onceFrom+s.ttl, s.extra().minHoldUntil)-now)
	case fixed:
		return s.capTTL(now, time.Millisecond) // only checks whether it is held: Extend never shortens a lease
	default:
		return s.capTTL(now, max(s.ttl, s.extra().minHoldUntil-now))
	}
}

// extensionTTL returns the TTL of an extension by d that the caller requests now. It includes
// what the next renewal was to do, which is not done after it: the lease lasts for the rest
// of MinHold, and without renewals for its own TTL.
func (s *leaseState) extensionTTL(now, d time.Duration) time.Duration {
	if s.rule == extendOnce {
		d = max(d, s.extra().onceFrom+s.ttl-now)
	}
	return s.capTTL(now, max(d, s.extra().minHoldUntil-now))
}

// headroom returns how much is left of the lease's time, from 1 to 0. It is 1 for a lease
// that is not renewed.
func (s *leaseState) headroom(now time.Duration) float64 {
	whole := s.deadline - s.deadlineFrom
	if s.rule == fixed || whole <= 0 {
		return 1
	}
	return max(0, float64(s.deadline-now)/float64(whole))
}

// renewRequests appends the requests of the renewal that is sent now.
func (s *leaseState) renewRequests(to []driver.ExtendRequest, client string, ttl time.Duration) []driver.ExtendRequest {
	first, recorded := len(to), s.isRecorded(ttl)
	to = s.extendRequests(to, client, ttl)
	for i := range to[first:] {
		to[first+i].Recorded = recorded
	}
	return to
}

// extendRequests appends the requests that extend the lease by ttl.
func (s *leaseState) extendRequests(to []driver.ExtendRequest, client string, ttl time.Duration) []driver.ExtendRequest {
	one := driver.ExtendRequest{Name: s.name, Token: s.token, Client: client, Fence: s.fence, TTL: ttl}
	if !s.weightUnsure {
		one.Weight, one.Limit = int(s.weight), int(s.limit)
	}
	to = append(to, one)
	for _, p := range s.extra().moreNames {
		one.Name, one.Fence = p.name, p.fence
		to = append(to, one)
	}
	return to
}

// extendResult combines the results of the names. The first name that is lost decides;
// else a name with an unknown outcome.
func (s *leaseState) extendResult(errs []error) (name string, err error) {
	for i, e := range errs {
		if e != nil && !errors.Is(err, ErrLost) {
			err, name = e, s.name
			if i > 0 {
				name = s.extra().moreNames[i-1].name
			}
		}
	}
	return name, err
}

// acquireRequest returns the request of the lease, as far as a cancel at now needs it. Its TTL
// is how long the cancel is worth repeating.
func (s *leaseState) acquireRequest(client string, now time.Duration) driver.AcquireRequest {
	r := driver.AcquireRequest{Name: s.name, Token: s.token, Client: client, TTL: s.storedFor(now), Weight: int(s.weight), Limit: int(s.limit)}
	for _, p := range s.extra().moreNames {
		r.With = append(r.With, p.name)
	}
	return r
}
