package drill

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/history"
)

// patient lets a call go on for longer than any failover lasts, so that each error that
// it returns is one too many.
const patient = 12 * time.Second

// shortLived leases end soon if their release was lost with a master.
const shortLived = 3 * time.Second

// work is what most who lock do.
func work(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(3 * time.Millisecond))) }

// workOrStay is work, and now and then something so long that a failover, and the time
// until it is known, fall into it.
func workOrStay(r *rand.Rand) time.Duration {
	if r.IntN(100) >= 3 {
		return work(r)
	}
	return time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
}

// A verdict is what a history says of what was done in it.
type verdict struct {
	entries []*history.Op // in the order of their returns
	doubles []history.Violation
	fences  []history.Violation
	errors  []*history.Op // that a call returned before the storm was over
	lost    int
}

func judge(h history.History, over history.Moment) (v verdict) {
	for _, found := range history.Check(h) {
		switch found.Rule {
		case history.Exclusion:
			v.doubles = append(v.doubles, found)
		case history.Fences:
			v.fences = append(v.fences, found)
		}
	}
	for _, op := range h {
		switch {
		case op.Verb == history.Take && op.Err == nil:
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

// next returns how long after a moment somebody entered.
func (v verdict) next(after history.Moment) (time.Duration, bool) {
	for _, op := range v.entries {
		if after.Before(op.Return) {
			return op.Return.At - after.At, true
		}
	}
	return 0, false
}

// nextAsked returns how long after a moment somebody entered one of some names, for
// which he asked after it.
func (v verdict) nextAsked(after history.Moment, names []string) (time.Duration, bool) {
	for _, op := range v.entries {
		if after.Before(op.Call) && slices.Contains(names, op.Names[0]) {
			return op.Return.At - after.At, true
		}
	}
	return 0, false
}

// rate returns how many entries there were in a second, between two moments.
func (v verdict) rate(from, to history.Moment) float64 {
	n := 0
	for _, op := range v.entries {
		if from.Before(op.Return) && op.Return.Before(to) {
			n++
		}
	}
	return float64(n) / (to.At - from.At).Seconds()
}

// wantFences checks that no fence was smaller than one before it.
func (v verdict) wantFences(t *testing.T) {
	t.Helper()
	for _, found := range v.fences[:min(3, len(v.fences))] {
		t.Errorf("%v", found)
	}
}

func (v verdict) wantNoDoubles(t *testing.T) {
	t.Helper()
	for _, found := range v.doubles[:min(3, len(v.doubles))] {
		t.Errorf("%v", found)
	}
}

func (v verdict) wantNoErrors(t *testing.T) {
	t.Helper()
	for _, op := range v.errors[:min(5, len(v.errors))] {
		t.Errorf("of %d errors: %v", len(v.errors), op)
	}
}
