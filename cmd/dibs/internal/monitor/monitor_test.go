package monitor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// An outage is a store that can fail at once, or hang.
type outage struct {
	*driver.Full
	mu    sync.Mutex
	cause error // nil: the store works
	hangs bool
	on    func(driver.Event)
}

func (o *outage) begin(cause error, hangs bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cause, o.hangs = cause, hangs
}

func (o *outage) end() { o.begin(nil, false) }

func (o *outage) fail(ctx context.Context, op string) error {
	o.mu.Lock()
	cause, hangs := o.cause, o.hangs
	o.mu.Unlock()
	if cause == nil {
		return nil
	}
	if hangs {
		<-ctx.Done()
	}
	var whole *driver.UnavailableError
	if errors.As(cause, &whole) {
		return whole
	}
	return &driver.UnavailableError{Op: op, Cause: cause}
}

func (o *outage) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	ctx, cancel := context.WithDeadline(ctx, r.Until)
	defer cancel()
	if err := o.fail(ctx, "acquire"); err != nil {
		return driver.AcquireReply{}, err
	}
	return o.Store.Acquire(ctx, r)
}

func (o *outage) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	if err := o.fail(ctx, "extend"); err != nil {
		errs := make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return o.Store.Extend(ctx, holds)
}

func (o *outage) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := o.fail(ctx, "inspect"); err != nil {
		return driver.State{}, err
	}
	return o.Full.Inspect(ctx, name)
}

func (o *outage) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	o.mu.Lock()
	o.on = on
	o.mu.Unlock()
	return o.Store.Watch(ctx, client, busy, on)
}

// emit sends an event to the Client and waits until its hooks have run.
func (o *outage) emit(e driver.Event) {
	o.mu.Lock()
	on := o.on
	o.mu.Unlock()
	on(e)
	synctest.Wait()
}

// A monitored is a Client on a monitored store, with the monitor's lines.
type monitored struct {
	*Monitor
	t      *testing.T
	output *outputBuffer
	locks  *dibs.Client
}

type outputBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *outputBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// drain returns the output since the last call.
func (b *outputBuffer) drain() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

const timeout = 2 * time.Second

func newMonitored(t *testing.T, s driver.Store) *monitored {
	output := new(outputBuffer)
	return newMonitoredTo(t, s, output, output)
}

func newMonitoredTo(t *testing.T, s driver.Store, output *outputBuffer, w io.Writer) *monitored {
	m := New(s, Options{Location: "redis://here", Timeout: timeout, Show: func(r Report) { fmt.Fprintf(w, "dibs: %s\n", r.Text()) }})
	return &monitored{Monitor: m, t: t, output: output, locks: dibs.New(m.Store(), dibs.Timeout(timeout), dibs.Observe(m.Hooks()))}
}

// wantLines checks that the lines since the last call match the patterns.
func (r *monitored) wantLines(what string, patterns ...string) {
	r.t.Helper()
	synctest.Wait()
	text := r.output.drain()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	if len(lines) != len(patterns) {
		r.t.Errorf("%s: want %d lines, have\n%s", what, len(patterns), text)
		return
	}
	for i, line := range lines {
		if !regexp.MustCompile("^dibs: " + patterns[i] + "$").MatchString(line) {
			r.t.Errorf("%s: want %s, have %s", what, patterns[i], line)
		}
	}
}

func (r *monitored) hold(name string, options ...dibs.Option) *dibs.Lease {
	r.t.Helper()
	r.SetWaiting([]string{name}, false)
	lease, err := r.locks.Mutex(name).TryLock(r.t.Context(), options...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.SetHolding(lease)
	return lease
}

func (r *monitored) end() {
	r.locks.Close()
	r.Close()
}

// For a holder, a single line should report that renewals fail, and another that they succeed
// again.
func TestOutageWhileHolding(t *testing.T) {
	for name, hangs := range map[string]bool{"refused": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &outage{Full: driver.Complete(memstore.New())}
				r := newMonitored(t, s)
				defer r.end()
				lease := r.hold("job")
				time.Sleep(5 * time.Second)
				s.begin(errors.New("no route"), hangs)
				time.Sleep(14 * time.Second)
				r.wantLines("renewals fail", `holding "job": cannot renew, [12]\ds left: (no route|no answer so far); store: redis://here`)
				time.Sleep(5 * time.Second)
				r.wantLines("they still fail")
				s.end()
				time.Sleep(2 * time.Second)
				r.wantLines("the store answers again", `holding "job": the store answers again, after \S+s`)
				s.begin(errors.New("no route"), hangs)
				time.Sleep(29 * time.Second)
				r.wantLines("a second outage", `holding "job": cannot renew, .*`)
				if err := r.NotRenewed(lease); !errors.Is(err, dibs.ErrLost) || err.Error() != `lease on "job" lost: not renewed in time: no route` {
					t.Errorf("have %v", err)
				}
			})
		})
	}
}

// Failures shorter than Delay must not be reported.
func TestShortFailuresAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Full: driver.Complete(memstore.New())}
		r := newMonitored(t, s)
		defer r.end()
		r.hold("job", dibs.TTL(3*time.Second))
		for range 20 {
			time.Sleep(900 * time.Millisecond)
			s.begin(errors.New("reset"), false)
			time.Sleep(Delay - 300*time.Millisecond)
			s.end()
		}
		r.wantLines("short failures")
	})
}

// Outages should also be reported to a waiter. A late failure of an operation sent before the end
// of the outage should be ignored.
func TestOutageWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Full: driver.Complete(memstore.New())}
		other := dibs.New(s.Store)
		defer other.Close()
		held, err := other.Mutex("job").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := newMonitored(t, s)
		defer r.end()
		r.SetWaiting([]string{"job"}, false)
		got := make(chan error, 1)
		go func() {
			lease, err := r.locks.Mutex("job").Lock(t.Context())
			if err == nil {
				r.SetHolding(lease)
			}
			got <- err
		}()
		time.Sleep(time.Second)
		s.begin(errors.New("no route"), true)
		time.Sleep(10 * time.Second)
		r.wantLines("the store is away", `waiting for "job": the store does not answer, trying again: no route; store: redis://here`)
		go r.locks.Inspect(t.Context(), "job")
		time.Sleep(100 * time.Millisecond)
		sent := time.Now()
		time.Sleep(time.Second)
		s.end()
		time.Sleep(3 * time.Second)
		r.wantLines("the store answers again", `waiting for "job": the store answers again, after \S+s`)
		r.health.record(t.Context(), sent, &driver.UnavailableError{Op: "acquire", Cause: errors.New("late")})
		time.Sleep(3 * time.Second)
		r.wantLines("a late failure")
		if err := errors.Join(held.Unlock(), <-got); err != nil {
			t.Error(err)
		}
	})
}

// Missing notifications should be reported to a waiter. If the whole store is unreachable, only
// this should be reported.
func TestNotificationsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Full: driver.Complete(memstore.New())}
		r := newMonitored(t, s)
		defer r.end()
		r.hold("mine")
		time.Sleep(time.Second)
		down := driver.Event{Kind: driver.EventDisconnected, Err: errors.New("NOPERM")}
		up := driver.Event{Kind: driver.EventConnected}
		s.emit(down)
		time.Sleep(2 * time.Second)
		r.wantLines("a holder needs none")
		s.emit(up)
		r.SetWaiting([]string{"job"}, false)
		s.emit(down)
		time.Sleep(Delay / 2)
		s.emit(up)
		time.Sleep(time.Second)
		r.wantLines("they are missing for a moment")
		s.emit(down)
		time.Sleep(time.Second)
		r.wantLines("they are missing", `waiting for "job": no notifications from the store, polling instead: NOPERM; store: redis://here`)
		s.emit(up)
		r.wantLines("they are back", `waiting for "job": notifications from the store again, after \S+s`)
		s.begin(errors.New("refused"), false)
		s.emit(down)
		time.Sleep(3 * time.Second)
		r.wantLines("the store is away", `waiting for "job": the store does not answer, trying again: refused; store: redis://here`)
	})
}

// Notifications that return shortly after the store are not reported.
func TestNotificationsReturnAfterTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Full: driver.Complete(memstore.New())}
		r := newMonitored(t, s)
		defer r.end()
		r.hold("mine") // which starts the notifications
		synctest.Wait()
		r.SetWaiting([]string{"job"}, false)
		s.begin(errors.New("refused"), false)
		s.emit(driver.Event{Kind: driver.EventDisconnected, Err: errors.New("gone")})
		time.Sleep(3 * time.Second)
		r.wantLines("the store is away", `waiting for "job": the store does not answer, .*`)
		s.end()
		if _, err := r.locks.Inspect(t.Context(), "job"); err != nil {
			t.Error(err)
		}
		time.Sleep(Delay / 2)
		s.emit(driver.Event{Kind: driver.EventConnected})
		time.Sleep(3 * time.Second)
		r.wantLines("both are back", `waiting for "job": the store answers again, .*`)
	})
}

// A first failure is reported if the caller retries, and otherwise not.
func TestFirstFailure(t *testing.T) {
	for _, retries := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &outage{Full: driver.Complete(memstore.New())}
			s.begin(errors.New("refused"), false)
			r := newMonitored(t, s)
			defer r.end()
			var want []string
			if retries {
				want = []string{`waiting for "job": the store does not answer, .*`}
			}
			r.SetWaiting([]string{"job"}, retries)
			_, _ = driver.Complete(r.Store()).Inspect(t.Context(), "job")
			time.Sleep(2 * Delay)
			r.wantLines("a first failure", want...)
		})
	}
}

// The total outage time includes the whole current outage.
func TestOutagesAreAddedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Full: driver.Complete(memstore.New())}
		r := newMonitored(t, s)
		defer r.end()
		inspect := func() { _, _ = driver.Complete(r.Store()).Inspect(t.Context(), "job") }
		for range 2 {
			s.begin(errors.New("refused"), false)
			inspect()
			time.Sleep(3 * time.Second)
			if n := r.CurrentOutage(); n != 3*time.Second {
				t.Errorf("the current outage lasts %v, want 3s", n)
			}
			s.end()
			inspect()
			time.Sleep(time.Second)
		}
		s.begin(errors.New("refused"), false)
		inspect()
		time.Sleep(time.Second)
		if current, total := r.CurrentOutage(), r.TotalOutage(); current != time.Second || total != 7*time.Second {
			t.Errorf("have %v and %v in all, want 1s and 7s", current, total)
		}
	})
}

// After Close nothing is written.
func TestClose(t *testing.T) {
	r := newMonitored(t, memstore.New())
	written := false
	r.Write(func() { written = true })
	r.end()
	if !written {
		t.Error("a pending line was lost")
	}
	r.Write(func() { t.Error("written after Close") })
	r.Close()
}

// Renewals go on while nobody reads stderr.
func TestBlockedStderrDelaysNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &outage{Full: driver.Complete(memstore.New())}
		in, out := io.Pipe()
		r := newMonitoredTo(t, s, nil, out)
		lease := r.hold("job", dibs.TTL(3*time.Second))
		for range 30 {
			s.begin(errors.New("no route"), false)
			time.Sleep(1800 * time.Millisecond)
			s.end()
			time.Sleep(time.Second)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("want the lease held, have %v", err)
		}
		go io.Copy(io.Discard, in)
		r.end()
		in.Close()
	})
}

// A refused connection has sent no request, so the client should not cancel.
func TestRefusedConnectionNeedsNoCancel(t *testing.T) {
	cause := errors.New("dial: refused")
	for _, test := range []struct {
		what  string
		cause error
		want  bool
	}{
		{"no connection", &driver.UnavailableError{Cause: cause, Unsent: true, Unreached: true}, true},
		{"a full pool", &driver.UnavailableError{Cause: cause, Unsent: true}, false},
		{"no reply", cause, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &outage{Full: driver.Complete(memstore.New())}
			s.begin(test.cause, false)
			r := newMonitored(t, s)
			began := time.Now()
			_, err := r.locks.Mutex("job").TryLock(t.Context())
			var u *driver.UnavailableError
			if !errors.As(err, &u) || u.Refused != test.want {
				t.Errorf("%s: have %#v", test.what, err)
			}
			r.end()
			if took := time.Since(began); test.want && took > timeout {
				t.Errorf("%s: it took %v", test.what, took)
			}
		})
	}
}
