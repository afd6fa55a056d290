package monitor

import (
	"errors"
	"time"
)

// answers records when a store answered, and when it did not.
type answers struct {
	last         time.Time     // time of the last answer, or zero
	failingSince time.Time     // start of the current run of failures, or zero
	err          error         // from the last failed operation in that run
	recovered    time.Time     // end of the last run of failures, or zero
	past         time.Duration // total length of past runs
}

// succeeded records an answer. It reports whether the answer ends a run of failures.
func (a *answers) succeeded(now time.Time) (recovered bool) {
	a.last = now
	if recovered = a.failing(); recovered {
		a.recovered = now
		a.past += now.Sub(a.failingSince)
	}
	a.failingSince, a.err = time.Time{}, nil
	return recovered
}

// failed records a failure. It reports whether the failure begins a run.
func (a *answers) failed(sent time.Time, err error) (first bool) {
	if a.err == nil || !errors.Is(err, errNoAnswer) { // another failure says more
		a.err = err
	}
	if first = !a.failing(); first {
		a.failingSince = sent
	}
	return first
}

func (a *answers) any() bool { return !a.last.IsZero() }

func (a *answers) failing() bool { return !a.failingSince.IsZero() }

func (a *answers) currentOutage(now time.Time) time.Duration {
	if !a.failing() {
		return 0
	}
	return now.Sub(a.failingSince)
}

func (a *answers) totalOutage(now time.Time) time.Duration { return a.past + a.currentOutage(now) }
