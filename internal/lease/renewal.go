package lease

import (
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/load"
)

// LeastRetry is the shortest time between two of a lease's renewals, if the first failed or got no
// answer.
const LeastRetry = 10 * time.Millisecond

// renewWindow is how early a renewal can be sent to share a batch, or a tenth of the TTL. With
// 1,000 leases and a TTL of 30 s, a client sends 20 requests a minute instead of 520, and renews
// 11 % more leases. With a longer window, single leases would be renewed after 7 s.
const renewWindow = 3 * time.Second

// NextAction returns when the next renewal is due, or the deadline if it is earlier. A renewal can
// be sent early, to share a batch, unless the last renewal failed or got no answer. Otherwise it
// would be repeated without a pause.
func (t *Times) NextAction() (at, early time.Duration) {
	switch {
	case t.deadline < t.renewAt:
		return t.deadline, 0
	case t.attempts > 0 || t.RenewErr() != nil:
		return t.renewAt, 0
	default:
		return t.renewAt, min(renewWindow, t.ttl/10)
	}
}

// Early returns how long before its time an action can be done, if it can be done early at all. A
// scheduler that is late will be late again, so it does the actions due until then now. But it
// should do so at most three times as early: then no renewal is due again directly after its
// answer.
func Early(early, late time.Duration) time.Duration { return early + min(late, 2*early) }

// IsDue reports whether a renewal is to be sent now. late is how late the scheduler is.
func (t *Times) IsDue(now, late time.Duration) bool {
	at, early := t.NextAction()
	early = Early(early, late)
	return !t.reason.IsEnd() && now < t.deadline && at == t.renewAt && at-early <= now
}

// Send records that a renewal is sent. It returns false if the lease is not held.
func (t *Times) Send() bool {
	if t.reason != Held {
		return false
	}
	if t.attempts++; t.attempts == 0 {
		t.attempts--
	}
	t.renewAt = clock.Never
	return true
}

// Postpone tries the renewal again later if its answer would probably come too late, since the
// store needs some time for it. Others have more time left: they go first. It returns false if the
// renewal is to be sent.
func (t *Times) Postpone(now, needs time.Duration) bool {
	const slack = 100 * time.Millisecond
	left := t.deadline - now
	if needs <= 0 || left >= min(needs+needs/4+slack, t.ttl/2) {
		return false
	}
	t.renewAt = now + max(left/2, LeastRetry)
	return true
}

// Awaits reports whether the lease needs the answer to the renewal sent at sent.
func (t *Times) Awaits(sent time.Duration) bool {
	return t.reason == Held && t.attempts > 0 && t.deadlineFrom < sent && t.renewAt == clock.Never
}

// SendAgain makes the lease due for renewal if it needs the answer to the renewal sent at sent.
// This renewal may be waiting for a server that no longer exists.
func (t *Times) SendAgain(now, sent time.Duration) {
	if t.Awaits(sent) {
		t.renewAt = now
	}
}

// Doubt makes the lease due for renewal, because the store may have lost it at a time, unless it was
// renewed since then. A renewal on its way will also show it.
func (t *Times) Doubt(now, since time.Duration) {
	if t.deadlineFrom <= since && t.attempts == 0 {
		t.renewAt = now
	}
}

// BeginTerm makes a renewed lease due for renewal.
func (t *Times) BeginTerm(now time.Duration) {
	if t.rule == renewed {
		t.renewAt = now
	}
}

// RecordRenewal records the outcome of a renewal for this many names, which was sent at sent. It is
// not ErrLost. If it failed, the next renewal is sent at retryAt, unless another is in flight.
func (s *State) RecordRenewal(now, sent, ttl time.Duration, names int, err error, retryAt time.Duration) {
	t := &s.Times
	if t.reason.IsEnd() {
		return
	}
	t.attempts = max(t.attempts, 1) - 1
	switch {
	case err == nil && names <= s.More():
		t.setRenewErr(nil)
		t.renewAt = now // names were added during the renewal
	case err == nil:
		t.setRenewErr(nil)
		if t.rule == extendOnce {
			t.rule = fixed
		}
		t.wasRenewed = true
		t.extend(sent, ttl)
	case sent >= t.deadlineFrom:
		t.setRenewErr(err)
		if t.attempts == 0 {
			t.renewAt = retryAt
		}
	}
}

// RecordNoAnswer records that a renewal got no answer. An earlier renewal's error stays, because it
// says more.
func (t *Times) RecordNoAnswer(why error) {
	if t.RenewErr() == nil {
		t.setRenewErr(why)
	}
}

// RetryAt returns when a failed renewal is repeated. The pauses grow, and are short compared with
// the TTL and with the remaining time.
func (t *Times) RetryAt(now time.Duration) time.Duration {
	failing := now - t.deadlineFrom - t.ttl/3
	d := min(max(failing/2, 50*time.Millisecond), t.ttl/80, (t.deadline-now)/4)
	return now + max(d, LeastRetry)
}

// Headroom returns the remaining part of the lease's time, from 1 to 0. It is 1 for a lease without
// renewals.
func (t *Times) Headroom(now time.Duration) float64 {
	whole := t.deadline - t.deadlineFrom
	if t.rule == fixed || whole <= 0 {
		return 1
	}
	return max(0, float64(t.deadline-now)/float64(whole))
}

// notSent returns why a due renewal was not sent: this process was late by some time, or the budget
// had no room.
func notSent(late time.Duration) error {
	cause := load.TooLittleCPU(late)
	if cause == nil {
		cause = errors.New("it was not sent in time: the store answers slowly")
	}
	return &driver.UnavailableError{Op: "extend", Cause: cause, Unsent: true}
}
