package dibs

import (
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/renew"
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
	attempts       uint8 // renewals without an answer so far
	ended          bool
	expiredLocally bool // the clock ended it, not an answer of the store
	maxHoldReached bool // MaxHold allows no further renewal
	wasRenewed     bool // the store has answered a renewal
	weightUnsure   bool // the store may have another weight
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
// that ttl is shorter than the requested TTL, as after a hand-off. spread is from 0 to 1: leases
// that begin together are not all renewed together.
func (s *leaseState) begin(noRenew bool, now, sent, ttl time.Duration, lift bool, spread float64) {
	s.rule = renewed
	if noRenew {
		s.rule = fixed
	}
	s.extend(sent, ttl)
	if lift || s.renewAt != never {
		// The first renewal is off the critical path, and short work needs none. After a
		// long wait sent is long ago, but that does not make the renewal urgent.
		third := max(s.deadline-now, 0) / 3
		s.renewAt = now + third - time.Duration(spread*float64(third/2))
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
	s.ttl = ttl
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
	d := max(s.ttl, x.minHoldUntil-now, x.storedUntil-now)
	if s.attempts > 0 { // a renewal on its way may arrive until the deadline
		d += max(s.deadline-now, 0)
	}
	return d
}

// sendRenewal records that a renewal is sent. It returns false if the lease has ended.
func (s *leaseState) sendRenewal() bool {
	if s.ended || s.err != nil {
		return false
	}
	if s.attempts++; s.attempts == 0 {
		s.attempts--
	}
	s.renewAt = never
	return true
}

// isHopeless reports whether a renewal that is sent now would probably be answered too late, since
// the store needs some time for it. Others have more time left: they go first.
func (s *leaseState) isHopeless(now, needs time.Duration) bool {
	const slack = 100 * time.Millisecond
	return needs > 0 && s.deadline-now < min(needs+needs/4+slack, s.ttl/2)
}

// awaits reports whether the lease needs the answer to the renewal that was sent at sent.
func (s *leaseState) awaits(sent time.Duration) bool {
	return !s.ended && s.err == nil && s.attempts > 0 && s.deadlineFrom < sent && s.renewAt == never
}

// leastRetry is the shortest time between two renewals of a lease, of which the first failed or
// had no answer.
const leastRetry = 10 * time.Millisecond

// recordRenewal records the outcome of a renewal of this many names, which was sent at sent. It
// is not ErrLost. If it failed, the next one is sent at retryAt, unless one is on its way.
func (s *leaseState) recordRenewal(now, sent, ttl time.Duration, names int, err error, retryAt time.Duration) {
	s.attempts = max(s.attempts, 1) - 1
	switch {
	case err == nil && names <= len(s.extra().moreNames):
		s.setRenewErr(nil)
		s.renewAt = now // names were added during the renewal
	case err == nil:
		s.setRenewErr(nil)
		if s.rule == extendOnce {
			s.rule = fixed
		}
		s.wasRenewed = true
		s.extend(sent, ttl)
	case sent >= s.deadlineFrom:
		s.setRenewErr(err)
		if s.attempts == 0 {
			s.renewAt = retryAt
		}
	}
}

// recordNoAnswer records that a renewal has no answer so far. The error of an earlier renewal stays,
// because it says more.
func (s *leaseState) recordNoAnswer(why error) {
	if s.extra().renewErr == nil {
		s.setRenewErr(why)
	}
}

// retryAt returns when a renewal that has just failed is repeated. The pauses grow, and are short
// compared with the TTL and with the time that is left.
func (s *leaseState) retryAt(now time.Duration) time.Duration {
	failing := now - s.deadlineFrom - s.ttl/3
	d := min(max(failing/2, 50*time.Millisecond), s.ttl/80, (s.deadline-now)/4)
	return now + max(d, leastRetry)
}

// nextAction returns the time of the next renewal, or of the deadline if that is earlier.
// A renewal may be sent early, to share a batch, unless the last one failed or has no answer.
// Otherwise it would be repeated without a pause.
func (s *leaseState) nextAction() (at, early time.Duration) {
	switch {
	case s.deadline < s.renewAt:
		return s.deadline, 0
	case s.attempts > 0 || s.extra().renewErr != nil:
		return s.renewAt, 0
	default:
		return s.renewAt, min(renewWindow, s.ttl/10)
	}
}

// isDue reports whether a renewal is to be sent now. late is how late the scheduler is.
func (s *leaseState) isDue(now, late time.Duration) bool {
	at, early := s.nextAction()
	early = renew.Early(early, late)
	return !s.ended && now < s.deadline && at == s.renewAt && at-early <= now
}

// expireAt ends the lease if its deadline has passed. late is by how much this process was late,
// and unanswered is why a renewal has no answer.
func (s *leaseState) expireAt(now, late time.Duration, unanswered error) {
	if s.ended || now < s.deadline {
		return
	}
	switch {
	case s.extra().renewErr != nil:
	case s.attempts > 0:
		s.setRenewErr(unanswered)
	case s.renewAt < s.deadline:
		s.setRenewErr(notSent(late))
	}
	s.expire()
}

// renewNow makes the lease due for renewal, also if a renewal has no answer so far: that may be
// waiting for a server that no longer exists.
func (s *leaseState) renewNow(now time.Duration) { s.renewAt = now }

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
	s.wasRenewed = s.wasRenewed && o.wasRenewed
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
