package duetest

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

var plan = Plan{First: time.Unix(1000, 0), Interval: time.Second, Modes: 2, Jobs: 2, Ticks: 5}

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"print": printChild})
}

// printChild prints its arguments, a line each.
func printChild(out io.Writer, lines []string) error {
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	return nil
}

func TestNext(t *testing.T) {
	for _, test := range []struct {
		mode             int
		now, wantedAfter time.Duration // since First
	}{
		{0, -time.Hour, 0}, {0, 0, time.Second}, {0, 1999 * time.Millisecond, 2 * time.Second},
		{1, 0, 500 * time.Millisecond}, {1, 500 * time.Millisecond, 1500 * time.Millisecond},
	} {
		if next := plan.Next(test.mode, plan.First.Add(test.now)); next != plan.First.Add(test.wantedAfter) {
			t.Errorf("mode %d, after %v: next due time after %v, want %v", test.mode, test.now, next.Sub(plan.First), test.wantedAfter)
		}
	}
}

// An event belongs to the last due time before it, or to the next if the timer was early.
func TestTick(t *testing.T) {
	for since, want := range map[time.Duration]due{
		3 * time.Second:         {tick: 3},
		3990 * time.Millisecond: {tick: 4},
		3980 * time.Millisecond: {tick: 3},
	} {
		tick, late := plan.tick(0, plan.First.Add(since))
		if tick != want.tick || late != since-time.Duration(tick)*time.Second {
			t.Errorf("after %v: due time %d, %v late, want %d", since, tick, late, want.tick)
		}
	}
}

// lines is a writer that stores its lines.
type lines []string

func (l *lines) Write(b []byte) (int, error) {
	*l = append(*l, string(b))
	return len(b), nil
}

func TestRecorder(t *testing.T) {
	var out lines
	plan := plan
	plan.First = time.Now().Add(-3 * time.Second).Add(-500 * time.Millisecond)
	recorder := Recorder{Plan: plan, Out: &out}
	locks := dibs.New(memstore.New(), recorder.Observe())
	defer locks.Close()
	lease, err := locks.Mutex(plan.Name(0, 1)).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Mutex(plan.Name(0, 1)).TryLock(t.Context()); err == nil {
		t.Fatal("locked twice")
	}
	recorder.Run(0, 1)
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	r := newRecord(plan)
	for _, line := range out {
		r.add(line)
	}
	at := due{mode: 0, job: 1, tick: 3}
	if r.requests[at] != 2 || r.runs[at] != 1 || r.released[at] < plan.Interval/2 || len(r.failures) > 0 {
		t.Errorf("lines %q: %+v, want 2 requests, a run and a release at due time 3", out, r)
	}
}

// A late due time must not count, and neither must the due time after it.
func TestPunctual(t *testing.T) {
	const late = "600000000"
	record := Read(t, plan, []*childtest.Child{childtest.Start(t, "print",
		"requested 0 0 0 1000", "ran 0 0 0 1000", "released 0 0 0 1000",
		"requested 0 0 1 1000", "requested 0 0 1 1000", // nobody ran it
		"requested 0 0 2 1000", "requested 0 0 2 "+late, "ran 0 0 2 1000", "ran 0 0 2 "+late, "released 0 0 2 "+late,
		"requested 0 0 3 1000", "requested 0 0 3 1000",
		"requested 0 0 4 1000", "requested 0 0 4 1000", "ran 0 0 4 1000",
		"ran 0 1 0 1000", "released 0 1 0 "+late, "requested 0 1 1 1000",
	), childtest.Start(t, "print", "requested 0 0 0 1000", "requested 0 1 0 1000", "requested 0 1 0 1000", "requested 0 1 1 1000")})
	if all := record.Of(0); all != (Tally{Once: 3, Never: 6, More: 1}) {
		t.Errorf("all due times: %+v", all)
	}
	// Due times 0, 1 and 4 for the first job, and 0 for the second.
	if n := record.Punctual(0, Limits{Requests: 2, Apart: time.Second / 2}); n != (Tally{Once: 3, Never: 1}) {
		t.Errorf("punctual due times: %+v", n)
	}
	// And 1, whose lock was released late because of the work, and 2 to 4, which had no requests.
	if n := record.Punctual(0, Limits{Apart: time.Second / 2, Work: time.Second / 2}); n != (Tally{Once: 3, Never: 5}) {
		t.Errorf("punctual due times with work: %+v", n)
	}
	if record.latestOf(0) != 600*time.Millisecond {
		t.Errorf("the latest request %v, want 600ms", record.latestOf(0))
	}
}

func TestFailures(t *testing.T) {
	r := newRecord(plan)
	for _, line := range []string{"requested 0 0 0 1000", "refused 1 0 0 1000", "failed 0/0 lost", "something else"} {
		r.add(line)
	}
	if len(r.failures) != 2 || r.refused[0] != 0 || r.refused[1] != 1 {
		t.Errorf("failures %q, %v requests refused, want two failures, and one request of the second mode", r.failures, r.refused)
	}
}

// A store that does not answer leaves a due time with fewer requests.
func TestRefused(t *testing.T) {
	var out lines
	store := servicetest.NewFaulty(memstore.New())
	store.Fail(&driver.UnavailableError{Op: "acquire", Cause: errors.New("no answer")}, "acquire")
	locks := dibs.New(store, Recorder{Plan: plan, Out: &out}.Observe())
	defer locks.Close()
	if _, err := locks.Mutex(plan.Name(1, 0)).TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
	if len(out) != 1 || !strings.HasPrefix(out[0], "refused 1 0 ") {
		t.Errorf("lines %q, want a refused request", out)
	}
}
