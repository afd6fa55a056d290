package duetest

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/childtest"
)

// A due is a due time for a job.
type due struct{ mode, job, tick int }

// A Record contains the results at each due time.
type Record struct {
	plan Plan

	mu       sync.Mutex
	runs     map[due]int
	requests map[due]int
	latest   map[due]time.Duration // for the requests
	released map[due]time.Duration // for the last run started there
	refused  map[int]int           // requests, by mode
	failures []string
}

func newRecord(plan Plan) *Record {
	return &Record{
		plan: plan,
		runs: map[due]int{}, requests: map[due]int{}, latest: map[due]time.Duration{}, released: map[due]time.Duration{},
		refused: map[int]int{},
	}
}

// Read reads the processes' lines until they end.
func Read(t testing.TB, plan Plan, children []*childtest.Child) *Record {
	t.Helper()
	r := newRecord(plan)
	var all sync.WaitGroup
	for _, child := range children {
		all.Go(func() {
			for line := range child.Lines() {
				r.add(line)
			}
		})
	}
	all.Wait()
	for _, child := range children {
		if err := child.Wait(); err != nil {
			t.Errorf("an instance ended: %v", err)
		}
	}
	for _, line := range r.failures {
		t.Error(line)
	}
	return r
}

func (r *Record) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var event string
	var at due
	var late time.Duration
	_, err := fmt.Sscan(line, &event, &at.mode, &at.job, &at.tick, (*int64)(&late))
	switch {
	case err != nil || event == failed:
		r.failures = append(r.failures, line)
	case event == refused:
		r.refused[at.mode]++ // and a request less at that due time
	case event == ran:
		r.runs[at]++
	case event == released:
		r.released[at] = max(r.released[at], late)
	case event == requested:
		r.requests[at]++
		r.latest[at] = max(r.latest[at], late)
	}
}

// A Tally counts due times by their number of runs.
type Tally struct {
	Once, Never, More int // by the number of runs
}

// Sum returns the number of due times.
func (n Tally) Sum() int { return n.Once + n.Never + n.More }

// ByRuns returns the due times by their number of runs, with 2 for several runs.
func (n Tally) ByRuns() map[int]int {
	runs := map[int]int{0: n.Never, 1: n.Once, 2: n.More}
	maps.DeleteFunc(runs, func(_, dueTimes int) bool { return dueTimes == 0 })
	return runs
}

// Of returns a mode's tally. A run counts for the last due time before it.
func (r *Record) Of(mode int) Tally {
	return r.tally(mode, func(due) bool { return true })
}

// Limits say which due times were punctual.
type Limits struct {
	Requests int           // at a due time, a request from each instance; 0 if instances can skip jobs without a request
	Apart    time.Duration // between instances, and between a run or its lock and the expected duration
	Work     time.Duration // for a run
}

// Punctual returns the tally for the due times within limits. A late event concerns the next due
// time as well, because the job may still be reserved.
func (r *Record) Punctual(mode int, within Limits) Tally {
	requests := func(at due) bool {
		return r.latest[at] < within.Apart && (within.Requests == 0 || r.requests[at] == within.Requests)
	}
	return r.tally(mode, func(at due) bool {
		before := due{at.mode, at.job, at.tick - 1}
		return requests(at) && (at.tick == 0 || requests(before) && r.released[before]-within.Work < within.Apart)
	})
}

func (r *Record) tally(mode int, counts func(due) bool) (n Tally) {
	for job := range r.plan.Jobs {
		for tick := range r.plan.Ticks {
			at := due{mode, job, tick}
			switch runs := r.runs[at]; {
			case !counts(at):
			case runs == 0:
				n.Never++
			case runs == 1:
				n.Once++
			default:
				n.More++
			}
		}
	}
	return n
}

// latestOf returns the longest time from a due time to a mode's last request.
func (r *Record) latestOf(mode int) (latest time.Duration) {
	for at, late := range r.latest {
		if at.mode == mode {
			latest = max(latest, late)
		}
	}
	return latest
}
