package monitor

import (
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard/view"
)

// A state is a Monitor's data. It has no clock.
type state struct {
	names   []string    // requested or held; empty: nothing was requested yet
	lease   *dibs.Lease // nil: waiting for the names
	retries bool        // the caller retries after a first failure, so report this failure as well
	verbose bool        // see Options

	answers       answers
	renewalSent   time.Time // when the renewal in flight was sent, or zero
	degraded      error     // why notifications are missing, or nil
	degradedSince time.Time // when notifications stopped

	reported      fault     // the last report
	reportedSince time.Time // start of the reported fault
}

// A fault is a store's problem.
type fault int

const (
	noFault fault = iota
	noNotifications
	unreachable
)

// report returns a report if a fault began or ended, or nil.
func (s *state) report(now time.Time) *Report {
	var r *Report
	fault := s.fault(now)
	switch {
	case fault == s.reported || len(s.names) == 0:
		return nil
	case fault == unreachable && !s.answers.any() && !s.retries:
		return nil // the caller exits with an error
	case fault == noNotifications && now.Sub(s.answers.recovered) < notified:
		return nil // notifications usually return shortly after the store
	case fault == noFault:
		r = s.recoveryReport(now)
	default:
		r = s.faultReport(fault, now)
	}
	if s.reported == noFault {
		s.reportedSince = s.faultBegan(now)
	}
	s.reported = fault
	return r
}

// fault returns the current fault.
func (s *state) fault(now time.Time) fault {
	// A holder needs no notifications.
	concerned := s.lease == nil || s.reported == noNotifications || s.verbose
	switch {
	case s.answers.currentOutage(now) >= Delay:
		return unreachable
	case s.answers.failing():
		return s.reported // not decided before Delay
	case s.degraded != nil && concerned && now.Sub(s.degradedSince) >= Delay:
		return noNotifications
	}
	return noFault
}

// faultBegan returns the start of the current fault.
func (s *state) faultBegan(now time.Time) time.Time {
	if s.answers.failing() {
		return s.answers.failingSince
	}
	return now
}

func (s *state) faultReport(f fault, now time.Time) *Report {
	r := &Report{Kind: Away, Names: s.names, Holding: s.lease != nil, Err: causeOf(s.answers.err)}
	switch {
	case f == noNotifications:
		r.Kind, r.Err = Degraded, causeOf(s.degraded)
	case s.lease != nil:
		r.Left = max(s.lease.Deadline().Sub(now), 0)
	}
	return r
}

func (s *state) recoveryReport(now time.Time) *Report {
	r := &Report{Kind: Back, Names: s.names, Holding: s.lease != nil, After: now.Sub(s.reportedSince)}
	if s.reported == noNotifications {
		r.Kind = Notified
	}
	return r
}

func (s *state) notRenewed(lease *dibs.Lease, now time.Time) error {
	names := s.names
	if len(names) == 0 {
		names = []string{lease.Name()}
	}
	why := "dibs was stopped, or the machine was too busy to run it"
	switch {
	case s.answers.err != nil:
		why = view.ErrorText(causeOf(s.answers.err))
	case !s.renewalSent.IsZero():
		why = "the store has not answered for " + view.Brief(now.Sub(s.renewalSent))
	}
	return lossError{fmt.Sprintf("lease on %s lost: not renewed in time: %s", view.Quoted(names), why)}
}

// A lossError is an ErrLost with its own text.
type lossError struct{ text string }

func (e lossError) Error() string { return e.text }

func (lossError) Unwrap() error { return dibs.ErrLost }
