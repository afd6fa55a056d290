package drill

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/history"
)

// longTimeout is longer than any failover, so no call may return an error.
const longTimeout = 12 * time.Second

// shortTTL is the TTL for leases that end soon if their release was lost with a master.
const shortTTL = 3 * time.Second

// shortWork is the usual time for which a lock is held.
func shortWork(r *rand.Rand) time.Duration {
	return time.Duration(r.Int64N(int64(3 * time.Millisecond)))
}

// mostlyShortWork is sometimes long enough to include a failover and its detection.
func mostlyShortWork(r *rand.Rand) time.Duration {
	if r.IntN(100) >= 3 {
		return shortWork(r)
	}
	return time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
}

// An outcome summarizes a history.
type outcome struct {
	entries   []*history.Op // Acquires in the order of their returns
	conflicts []history.Violation
	fences    []history.Violation
	errors    []*history.Op // returned by a call before the workload ended
	lost      int
}

func evaluate(h history.History, over history.Moment) (v outcome) {
	for _, found := range history.Check(h) {
		switch found.Rule {
		case history.Exclusion:
			v.conflicts = append(v.conflicts, found)
		case history.Fences:
			v.fences = append(v.fences, found)
		}
	}
	for _, op := range h {
		switch {
		case op.Verb == history.Acquire && op.Err == nil:
			v.entries = append(v.entries, op)
		case errors.Is(op.Err, dibs.ErrLost):
			v.lost++
		case op.Err != nil && op.Return.Before(over):
			v.errors = append(v.errors, op)
		}
	}
	slices.SortFunc(v.entries, func(a, b *history.Op) int { return a.Return.Order - b.Return.Order })
	return v
}

// next returns the time from a moment to the next acquired lock.
func (v outcome) next(after history.Moment) (time.Duration, bool) {
	for _, op := range v.entries {
		if after.Before(op.Return) {
			return op.Return.At - after.At, true
		}
	}
	return 0, false
}

// nextRequested returns the time from a moment to the next acquired lock on names, among those
// requested after it.
func (v outcome) nextRequested(after history.Moment, names []string) (time.Duration, bool) {
	for _, op := range v.entries {
		if after.Before(op.Call) && slices.Contains(names, op.Names[0]) {
			return op.Return.At - after.At, true
		}
	}
	return 0, false
}

// rate returns the number of locks per second between two moments.
func (v outcome) rate(from, to history.Moment) float64 {
	n := 0
	for _, op := range v.entries {
		if from.Before(op.Return) && op.Return.Before(to) {
			n++
		}
	}
	return float64(n) / (to.At - from.At).Seconds()
}

// wantFences checks that no fence decreased.
func (v outcome) wantFences(t *testing.T) {
	t.Helper()
	for _, found := range v.fences[:min(3, len(v.fences))] {
		t.Errorf("%v", found)
	}
}

func (v outcome) wantNoConflicts(t *testing.T) {
	t.Helper()
	for _, found := range v.conflicts[:min(3, len(v.conflicts))] {
		t.Errorf("%v", found)
	}
}

func (v outcome) wantNoErrors(t *testing.T) {
	t.Helper()
	for _, op := range v.errors[:min(5, len(v.errors))] {
		t.Errorf("of %d errors: %v", len(v.errors), op)
	}
}
