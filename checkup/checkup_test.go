package checkup_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func server(t *testing.T) checkup.Server {
	return checkup.Server{Report: new(checkup.Report), Ctx: t.Context()}
}

func subjects(found checkup.Findings) (all []string) {
	for _, f := range found {
		all = append(all, f.Subject)
	}
	return all
}

func TestCheckClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	sample := func(host, server time.Duration) checkup.TimeSample {
		return checkup.TimeSample{Sent: now.Add(host), Server: now.Add(host + server), Received: now.Add(host + time.Millisecond)}
	}
	for _, c := range []struct {
		start, end checkup.TimeSample
		want       map[string]checkup.Severity
	}{
		{sample(0, 0), sample(time.Second, 0), nil},
		{sample(0, 900*time.Millisecond), sample(time.Second, 900*time.Millisecond), nil},
		{sample(0, 9*time.Second), sample(time.Second, 9*time.Second), map[string]checkup.Severity{"clock": checkup.Note}},
		{sample(0, time.Hour), sample(time.Second, time.Hour), map[string]checkup.Severity{"clock": checkup.Warning}},
		{sample(0, -time.Hour), sample(time.Second, -time.Hour), map[string]checkup.Severity{"clock": checkup.Warning}},
		{sample(0, 0), sample(time.Second, 500*time.Millisecond), map[string]checkup.Severity{"clock-jump": checkup.Critical}},
		{sample(0, 500*time.Millisecond), sample(time.Second, 0), map[string]checkup.Severity{"clock-jump": checkup.Critical}},
	} {
		s := server(t)
		s.CheckClock(c.start, c.end)
		found := s.Findings()
		if len(found) != len(c.want) {
			t.Errorf("want %v, found:\n%v", c.want, found)
		}
		for _, f := range found {
			if severity, ok := c.want[f.Subject]; !ok || severity != f.Severity {
				t.Errorf("want %v, found:\n%v", c.want, f)
			}
		}
	}
}

// The findings are sorted, and report it if the checks were interrupted.
func TestFindings(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	found, err := checkup.Collect(ctx, func(ctx context.Context, r *checkup.Report) error {
		r.Visited(nil)
		s := checkup.Server{Report: r, Ctx: ctx, Addr: "b"}
		none := checkup.If(false, checkup.Critical, "none", "", "", "")
		first := checkup.If(true, checkup.Warning, "first", "", "", "")
		s.AddAll(none, first)
		s.AddFirst(none, checkup.If(true, checkup.Critical, "second", "", "", ""), first)
		if s.Unchecked("third", "", nil) || !s.Unchecked("third", "what", errors.New("failed")) {
			t.Error("an error was not reported")
		}
		s.Addr = "a"
		s.AddAll(first)
		cancel()
		return nil
	})
	have, nodes := subjects(found), found[1].Node+found[2].Node
	if want := []string{"second", "first", "first", "unfinished", "third"}; !slices.Equal(have, want) || nodes != "ab" || err != nil {
		t.Errorf("have %q on %s, %v, want %q", have, nodes, err, want)
	}
}

// A check that does not end in time must be a finding, and the others must follow.
func TestSlowCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ended := false
		found, err := checkup.Collect(t.Context(), func(ctx context.Context, r *checkup.Report) error {
			r.Visited(nil)
			s := checkup.Server{Report: r, Ctx: ctx}
			s.Run(
				checkup.Check{Name: "slow", Run: func() { <-s.Ctx.Done() }},
				checkup.Check{Name: "next", Run: func() { ended = s.Ctx.Err() == nil }},
			)
			return nil
		})
		if took := time.Since(begin); err != nil || len(found) != 1 || !strings.Contains(found[0].What, `"slow"`) || !ended || took != 15*time.Second {
			t.Errorf("after %v: the next one has ended: %t, %v, found:\n%v", took, ended, err, found)
		}
	})
}

// Examine must return, even if a client does not.
func TestHangingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never)
		examine := func(reached bool) (checkup.Findings, error) {
			return checkup.Collect(t.Context(), func(_ context.Context, r *checkup.Report) error {
				if reached {
					r.Visited(nil)
				}
				<-never
				return nil
			})
		}
		begin := time.Now()
		found, err := examine(true)
		if took := time.Since(begin); err != nil || !slices.Equal(subjects(found), []string{"unfinished"}) || took > 31*time.Second {
			t.Errorf("after %v: %v, %v", took, err, found)
		}
		var u *driver.UnavailableError
		if found, err := examine(false); !errors.As(err, &u) || u.Op != "doctor" || found != nil {
			t.Errorf("have %v, %v", found, err)
		}
	})
}

// If no server replied, the error is a single line, with each reason once.
func TestNoServerReplied(t *testing.T) {
	t.Parallel()
	silent, closed := errors.New("no reply"), errors.New("connection refused")
	_, err := checkup.Collect(t.Context(), func(_ context.Context, r *checkup.Report) error {
		for _, reason := range []error{silent, closed, silent} {
			r.Visited(reason)
		}
		return nil
	})
	if want := "dibs: doctor: store unavailable: no reply; connection refused"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if !errors.Is(err, silent) || !errors.Is(err, closed) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a cause is missing in %v", err)
	}
}

// A trial passes with a working store, and leaves nothing behind.
func TestTrial(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	watched := ""
	trial := checkup.Trial{Store: s, Watch: s.Watch, Watched: func(client string) { watched = client }}
	if have := trial.Run(t.Context()); have != (checkup.Result{}) || watched == "" {
		t.Errorf("%+v, client %q", have, watched)
	}
	if names, err := s.List(t.Context(), "*"); err != nil || len(names) > 0 {
		t.Errorf("%q, %v are left", names, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if have := trial.Run(ended); have.Lock == nil {
		t.Error("a trial with an ended context passes")
	}
}

// A trial gives the reason for missing notifications.
func TestTrialWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		for what, watch := range map[string]func(context.Context, string, func() bool, func(driver.Event)) error{
			"refused": func(context.Context, string, func() bool, func(driver.Event)) error { return refused },
			"no message": func(ctx context.Context, _ string, _ func() bool, _ func(driver.Event)) error {
				<-ctx.Done()
				return ctx.Err()
			},
		} {
			have := checkup.Trial{Store: memstore.New(), Watch: watch}.Run(t.Context())
			if have.Lock != nil || have.Listen == nil || !strings.Contains(have.Listen.Error(), what) || have.Grant != nil {
				t.Errorf("%s: %+v", what, have)
			}
		}
		deaf := func(ctx context.Context, _ string, _ func() bool, on func(driver.Event)) error {
			on(driver.Event{Kind: driver.EventConnected})
			<-ctx.Done()
			return ctx.Err()
		}
		if have := (checkup.Trial{Store: memstore.New(), Watch: deaf}).Run(t.Context()); have.Lock != nil || have.Listen != nil || have.Grant == nil {
			t.Errorf("no grant: %+v", have)
		}
	})
}
