package checkup_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/checkup"
	"github.com/dibslock/dibs/memstore"
)

func TestCheckClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	sample := func(host, server time.Duration) checkup.TimeSample {
		return checkup.TimeSample{Sent: now.Add(host), Server: now.Add(host + server), Received: now.Add(host + time.Millisecond)}
	}
	for _, c := range []struct {
		start, end checkup.TimeSample
		want       map[string]driver.Severity
	}{
		{sample(0, 0), sample(time.Second, 0), nil},
		{sample(0, 900*time.Millisecond), sample(time.Second, 900*time.Millisecond), nil},
		{sample(0, time.Hour), sample(time.Second, time.Hour), map[string]driver.Severity{"clock": driver.Note}},
		{sample(0, -time.Hour), sample(time.Second, -time.Hour), map[string]driver.Severity{"clock": driver.Note}},
		{sample(0, 0), sample(time.Second, 500*time.Millisecond), map[string]driver.Severity{"clock-jump": driver.Critical}},
		{sample(0, 500*time.Millisecond), sample(time.Second, 0), map[string]driver.Severity{"clock-jump": driver.Critical}},
	} {
		e := checkup.Report{Ctx: t.Context()}
		e.CheckClock(c.start, c.end)
		if len(e.Found) != len(c.want) {
			t.Errorf("want %v, found:\n%v", c.want, e.Found)
		}
		for _, f := range e.Found {
			if severity, ok := c.want[f.Subject]; !ok || severity != f.Severity {
				t.Errorf("want %v, found:\n%v", c.want, f)
			}
		}
	}
}

// The findings are sorted, and say so if the checks were interrupted.
func TestFindings(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := checkup.Report{Ctx: ctx}
	candidate := checkup.Candidate{Applies: true, Severity: driver.Warning, Subject: "first"}
	r.AddAll(checkup.Candidate{Subject: "none"}, candidate)
	r.AddFirst(checkup.Candidate{Subject: "none"}, checkup.Candidate{Applies: true, Severity: driver.Critical, Subject: "second"}, candidate)
	if r.Unchecked("third", "", nil) || !r.Unchecked("third", "what", errors.New("failed")) {
		t.Error("an error was not reported")
	}
	cancel()
	var have []string
	for _, f := range r.Findings() {
		have = append(have, f.Subject)
	}
	if want := []string{"second", "first", "third", "unfinished"}; !slices.Equal(have, want) {
		t.Errorf("have %q, want %q", have, want)
	}
}

// A store that works passes the smoke test, and nothing is left behind.
func TestSmoke(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	if have := checkup.TestLocking(t.Context(), s, true); have != (checkup.Smoke{}) {
		t.Errorf("%+v", have)
	}
	if names, err := s.List(t.Context(), "*"); err != nil || len(names) > 0 {
		t.Errorf("%q, %v are left", names, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if have := checkup.TestLocking(ended, s, true); have.Lock == nil {
		t.Error("a test with an ended context passes")
	}
}
