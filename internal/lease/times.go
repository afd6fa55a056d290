package lease

import (
	"time"

	"github.com/dibslock/dibs/internal/clock"
)

// Times are a lease's deadline and its renewals.
type Times struct {
	ttl          time.Duration
	deadline     time.Duration // the lease is lost at this time
	deadlineFrom time.Duration // the request that set the deadline was sent at this time
	renewAt      time.Duration // time of the next renewal, or never
	extra        *timesExtra   // rarely used fields; or nil

	// Side by side they share a single word.
	rule           rule
	attempts       uint8  // renewals without an answer
	maxHoldReached bool   // MaxHold allows no further renewal
	wasRenewed     bool   // the store answered a renewal
	reason         Reason // why the lease is not held: then nothing is due
	endDetected    bool   // DetectEnd returned true
}

// A timesExtra contains rarely used fields.
type timesExtra struct {
	minHoldUntil time.Duration // when MinHold ends, or zero
	maxHoldUntil time.Duration // when MaxHold ends, or zero
	onceFrom     time.Duration // for extendOnce: the single extension's TTL counts from here
	storedUntil  time.Duration // until then a request with a longer TTL than the lease's may keep it in the store; or zero
	renewErr     error         // the last renewal's; nil if it succeeded
}

// A rule is how a lease is renewed.
type rule uint8

const (
	renewed    rule = iota // again and again
	extendOnce             // once, from a short first TTL to its own TTL
	fixed                  // never
)

// Begin sets the times of a new lease at now. Its TTL began at sent or later. lift means
// that ttl is shorter than the requested TTL, as after a hand-off. spread is from 0 to 1: leases
// that begin together are not all renewed together.
func (t *Times) Begin(noRenew bool, now, sent, ttl time.Duration, lift bool, spread float64) {
	t.rule = renewed
	if noRenew {
		t.rule = fixed
	}
	t.extend(sent, ttl)
	if lift || t.renewAt != clock.Never {
		// The first renewal is off the critical path, and short work needs none. After a long wait
		// sent is long ago, but this does not make the renewal urgent.
		third := max(t.deadline-now, 0) / 3
		t.renewAt = now + third - time.Duration(spread*float64(third/2))
	}
	if noRenew && lift {
		t.beginOnce(sent)
	}
}

// beginOnce sets the lease to be extended once, to its TTL from a given time.
func (t *Times) beginOnce(from time.Duration) {
	t.rule = extendOnce
	t.changeExtra().onceFrom = from
}

// LimitHold sets when MinHold and MaxHold end, each from its own beginning. Zero is none.
func (t *Times) LimitHold(minFrom, minHold, maxFrom, maxHold time.Duration) {
	if minHold > 0 {
		t.changeExtra().minHoldUntil = clock.Add(minFrom, minHold)
	}
	if maxHold > 0 {
		t.changeExtra().maxHoldUntil = clock.Add(maxFrom, maxHold)
	}
}

// DropMinHold ends MinHold now.
func (t *Times) DropMinHold() {
	if t.extra != nil {
		t.extra.minHoldUntil = 0
	}
}

// BeginWhole applies the settings of a multi-lock to a lease that now holds all its names.
func (t *Times) BeginWhole(now, minHold, maxHold time.Duration, noRenew bool) {
	t.LimitHold(now, minHold, now, maxHold)
	if maxHold > 0 {
		t.deadline = min(t.deadline, t.maxHoldUntil())
		t.maxHoldReached = t.deadline == t.maxHoldUntil()
	}
	if noRenew {
		t.beginOnce(now)
		t.renewAt = now
	}
}

// extend sets the deadline and the next renewal. The store confirmed ttl for a request sent at
// sent.
func (t *Times) extend(sent, ttl time.Duration) {
	if end := sent + ttl - clock.Margin(ttl); end > t.deadline {
		t.deadline, t.deadlineFrom = end, sent
	}
	t.renewAt = clock.Never
	t.maxHoldReached = t.maxHoldReached || sent+ttl >= t.maxHoldUntil()
	if t.rule == renewed && !t.maxHoldReached {
		t.renewAt = sent + min(ttl, t.ttl)/3 // with MinHold, ttl may be longer than t.ttl
	}
}

// Confirm records at now that the store extended the lease by ttl, at the caller's request. Later
// renewals extend it by next. An ended lease does not change.
func (t *Times) Confirm(now, sent, ttl, next time.Duration) {
	if t.reason.IsEnd() {
		return
	}
	t.setRenewErr(nil)
	if t.rule == extendOnce {
		t.rule = fixed // ttl includes the single extension
	}
	t.changeTTL(now, next)
	t.extend(sent, ttl)
}

// changeTTL sets the TTL for the renewals after now.
func (t *Times) changeTTL(now, ttl time.Duration) {
	before := t.ttl
	t.ttl = ttl
	t.MayExtend(now, before) // an earlier renewal
}

// MayExtend records that a request may extend the lease by ttl until then. There is nothing to
// record unless it extends the lease further than a renewal.
func (t *Times) MayExtend(until, ttl time.Duration) {
	if end := clock.Add(until, ttl); ttl > t.ttl && end > t.readExtra().storedUntil {
		t.changeExtra().storedUntil = end
	}
}

// merge takes the stricter times when two leases are merged.
func (t *Times) merge(o *Times) {
	x, other := t.changeExtra(), o.readExtra()
	x.minHoldUntil = max(x.minHoldUntil, other.minHoldUntil)
	x.storedUntil = max(x.storedUntil, other.storedUntil)
	t.deadline, t.renewAt = min(t.deadline, o.deadline), min(t.renewAt, o.renewAt)
	t.wasRenewed = t.wasRenewed && o.wasRenewed
}

// TTL returns the TTL for later renewals.
func (t *Times) TTL() time.Duration { return t.ttl }

// Deadline returns when the lease is lost if it is not renewed.
func (t *Times) Deadline() time.Duration { return t.deadline }

// IsOver reports whether the deadline is over although nothing ended the lease.
func (t *Times) IsOver(now time.Duration) bool { return t.reason == Held && now >= t.deadline }

// MinHoldUntil returns until when the names must stay unavailable after a release, or zero.
func (t *Times) MinHoldUntil() time.Duration { return t.readExtra().minHoldUntil }

// StoredFor returns how long the store may keep the lease after now if no further request extends
// it. The deadline does not measure this: it is earlier by the margin, and does not count an
// extension without an answer.
func (t *Times) StoredFor(now time.Duration) time.Duration {
	x := t.readExtra()
	d := max(t.ttl, x.minHoldUntil-now, x.storedUntil-now)
	if t.attempts > 0 { // a renewal on its way may arrive until the deadline
		d += max(t.deadline-now, 0)
	}
	return d
}

// maxHoldUntil returns when MaxHold ends, or never.
func (t *Times) maxHoldUntil() time.Duration {
	if t.extra == nil || t.extra.maxHoldUntil == 0 {
		return clock.Never
	}
	return t.extra.maxHoldUntil
}

// capTTL limits the TTL for a renewal sent now to MaxHold's end.
func (t *Times) capTTL(now, ttl time.Duration) time.Duration {
	return max(min(ttl, t.maxHoldUntil()-now), time.Millisecond)
}

// RenewalTTL returns the TTL for a renewal sent now.
func (t *Times) RenewalTTL(now time.Duration) time.Duration {
	x := t.readExtra()
	switch t.rule {
	case extendOnce:
		return t.capTTL(now, max(x.onceFrom+t.ttl, x.minHoldUntil)-now)
	case fixed:
		return t.capTTL(now, time.Millisecond) // only checks whether it is held: Extend never shortens a lease
	default:
		return t.capTTL(now, max(t.ttl, x.minHoldUntil-now))
	}
}

// ExtensionTTL returns the TTL for an extension by d that the caller requests now. It includes the
// next renewal's task, which is not done after it: the lease lasts for the rest of MinHold, and
// without renewals for its own TTL.
func (t *Times) ExtensionTTL(now, d time.Duration) time.Duration {
	if t.rule == extendOnce {
		d = max(d, t.readExtra().onceFrom+t.ttl-now)
	}
	return t.capTTL(now, max(d, t.readExtra().minHoldUntil-now))
}

// readExtra returns a copy of the extra times, for reading.
func (t *Times) readExtra() timesExtra {
	if t.extra == nil {
		return timesExtra{}
	}
	return *t.extra
}

// changeExtra returns the extra times, for changing them.
func (t *Times) changeExtra() *timesExtra {
	if t.extra == nil {
		t.extra = new(timesExtra)
	}
	return t.extra
}

// RenewErr returns the last renewal's error, or nil if it succeeded.
func (t *Times) RenewErr() error { return t.readExtra().renewErr }

// setRenewErr records the last renewal's error, or nil. A store failure, which concerns all leases,
// leaves nothing behind.
func (t *Times) setRenewErr(err error) {
	if err == nil && t.extra == nil {
		return
	}
	x := t.changeExtra()
	if x.renewErr = err; *x == (timesExtra{}) {
		t.extra = nil
	}
}

// IsNew reports whether no renewal of the lease was answered yet.
func (t *Times) IsNew() bool { return !t.wasRenewed }
