package dibsslog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsslog"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

// newLogger returns a logger for all levels. Its lines contain neither a time nor a fence.
func newLogger(level slog.Leveler) (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "fence" {
			return slog.Attr{}
		}
		return a
	}})), &out
}

// inBubble runs a test in virtual time, with a client that logs.
func inBubble(t *testing.T, store driver.Store, c dibsslog.Config, test func(locks *dibs.Client)) string {
	logger, out := newLogger(slog.LevelDebug)
	locks := dibs.New(store, dibs.Observe(dibsslog.Hooks(logger, c)))
	test(locks)
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return strings.TrimSpace(out.String())
}

func lock(t *testing.T, l interface {
	Lock(ctx context.Context, options ...dibs.Option) (*dibs.Lease, error)
}, options ...dibs.Option) *dibs.Lease {
	t.Helper()
	lease, err := l.Lock(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantLines(t *testing.T, have string, want ...string) {
	t.Helper()
	if w := strings.Join(want, "\n"); have != w {
		t.Errorf("have\n%s\nwant\n%s", have, w)
	}
}

func TestAcquireAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := inBubble(t, memstore.New(), dibsslog.Config{SlowWait: 3 * time.Second}, func(locks *dibs.Client) {
			first := lock(t, locks.Mutex("order:42"), dibs.Label("web"))
			if _, err := locks.Mutex("order:42").TryLock(t.Context(), dibs.OwnerToken("t")); !errors.Is(err, dibs.ErrBusy) {
				t.Fatal(err)
			}
			time.AfterFunc(3*time.Second, func() { first.Unlock() })
			second := lock(t, locks.All([]string{"order:42", "x=1 y\n2"}))
			second.Unlock()
			first = lock(t, locks.Mutex("order:42"))
			time.AfterFunc(time.Second, func() { first.Unlock() })
			lock(t, locks.Mutex("order:42")).Unlock()
		})
		have = strings.NewReplacer(holder(have), "HOLDER").Replace(have)
		wantLines(t, inOrder(have), inOrder(strings.Join([]string{
			`level=DEBUG msg="lock acquired" name=order:42 kind=mutex label=web waited=0s`,
			`level=DEBUG msg="lock not acquired: busy" name=order:42 kind=mutex waited=0s err="dibs: acquire \"order:42\": held by HOLDER:web for another 30s"`,
			`level=DEBUG msg="lock released" name=order:42 kind=mutex label=web held=3s`,
			`level=WARN msg="lock acquired after a long wait" name=order:42 more="[x=1 y\n2]" kind=multi waited=3s`,
			`level=DEBUG msg="lock released" name=order:42 more="[x=1 y\n2]" kind=multi held=0s`,
			`level=DEBUG msg="lock acquired" name=order:42 kind=mutex waited=0s`,
			`level=DEBUG msg="lock released" name=order:42 kind=mutex held=1s`,
			`level=DEBUG msg="lock acquired" name=order:42 kind=mutex waited=1s notified=true`,
			`level=DEBUG msg="lock released" name=order:42 kind=mutex held=0s`,
		}, "\n")))
	})
}

// inOrder sorts lines: at a hand-off the old holder and the new holder log at the same time.
func inOrder(lines string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(lines, "\n")), "\n")
}

// holder returns the host and the process in a BusyError's message.
func holder(lines string) string {
	_, after, _ := strings.Cut(lines, "held by ")
	before, _, _ := strings.Cut(after, ":web")
	return before
}

// failing returns a store with failing operations.
func failing(operations ...string) *servicetest.Faulty {
	store := servicetest.NewFaulty(memstore.New())
	store.Fail(errDown, operations...)
	return store
}

var errDown = &driver.UnavailableError{Op: "test", Cause: errors.New("down")}

func TestStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := inBubble(t, failing("acquire"), dibsslog.Config{}, func(locks *dibs.Client) {
			if _, err := locks.Mutex("order:42").TryLock(t.Context()); !errors.Is(err, dibs.ErrUnavailable) {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := locks.Mutex("order:42").Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		})
		first, second, _ := strings.Cut(have, "\n")
		if !strings.HasPrefix(first, `level=WARN msg="lock not acquired" name=order:42 kind=mutex waited=`) || !strings.HasSuffix(first, `down"`) {
			t.Errorf("line %s", first)
		}
		wantLines(t, second, `level=DEBUG msg="lock not acquired: the context ended" name=order:42 kind=mutex waited=0s err="dibs: acquire \"order:42\": context canceled"`)
	})
}

func TestReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := inBubble(t, failing("release"), dibsslog.Config{Acquired: dibsslog.Off}, func(locks *dibs.Client) {
			if err := lock(t, locks.Mutex("order:42")).Unlock(); !errors.Is(err, dibs.ErrUnavailable) {
				t.Fatal(err)
			}
		})
		if !strings.HasPrefix(have, `level=WARN msg="lock not released" name=order:42 kind=mutex held=`) || strings.Contains(have, "\n") {
			t.Errorf("lines %s", have)
		}
	})
}

// During an outage the lines about renewals should be bounded, and each loss should have a line.
func TestOutage(t *testing.T) {
	for every, limit := range map[time.Duration]int{0: 31, 10 * time.Second: 4} {
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const leases = 50
				store := failing("extend")
				config := dibsslog.Config{Acquired: dibsslog.Off, RenewFailedEvery: every}
				have := inBubble(t, store, config, func(locks *dibs.Client) {
					for i := range leases {
						lock(t, locks.Mutex(fmt.Sprint("n", i)))
					}
					time.Sleep(time.Minute) // the TTL is 30 s
				})
				renewals := strings.Count(have, `level=WARN msg="lease not yet renewed"`)
				if renewals < 2 || renewals > limit || !strings.Contains(have, "suppressed=") {
					t.Errorf("%d lines about renewals, want 2 to %d", renewals, limit)
				}
				if n := strings.Count(have, `level=ERROR msg="lease lost"`); n != leases || !strings.Contains(have, "reason=expired") {
					t.Errorf("%d lines about losses, want %d", n, leases)
				}
				if n := strings.Count(have, "\n") + 1; n != renewals+leases {
					t.Errorf("%d lines:\n%s", n, have)
				}
			})
		})
	}
}

// An outage's failures should have lines when it ends, and not with the next outage.
func TestSuppressedFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := newLogger(slog.LevelDebug)
		hooks := dibsslog.Hooks(logger, dibsslog.Config{})
		fail := func(name string, left time.Duration) {
			hooks.RenewFailed(t.Context(), dibs.RenewFailed{LockInfo: dibs.LockInfo{Names: []string{name}, Kind: dibs.KindMutex}, Left: left, Err: dibs.ErrUnavailable})
		}
		for left := 9 * time.Second; left >= 5*time.Second; left -= time.Second {
			fail("a", left)
		}
		time.Sleep(time.Hour) // in the bubble
		fail("b", time.Second)
		time.Sleep(time.Hour)
		wantLines(t, strings.TrimSpace(out.String()),
			`level=WARN msg="lease not yet renewed" name=a kind=mutex left=9s err="`+dibs.ErrUnavailable.Error()+`"`,
			`level=WARN msg="lease not yet renewed" name=a kind=mutex left=5s suppressed=3 err="`+dibs.ErrUnavailable.Error()+`"`,
			`level=WARN msg="lease not yet renewed" name=b kind=mutex left=1s err="`+dibs.ErrUnavailable.Error()+`"`,
		)
	})
}

// A line written later should have its event's time, which comes before the loss's, and the same
// source as the other lines.
func TestTimeOfALateLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines records
		hooks := dibsslog.Hooks(slog.New(&lines), dibsslog.Config{})
		start := time.Now()
		for range 2 {
			hooks.RenewFailed(t.Context(), dibs.RenewFailed{Left: 100 * time.Millisecond, Err: dibs.ErrUnavailable})
		}
		time.Sleep(100 * time.Millisecond)
		hooks.Lost(t.Context(), dibs.Lost{Reason: dibs.ReasonExpired})
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []time.Duration{0, 100 * time.Millisecond, 0} // the second failure is the last line
		for i, line := range lines.all {
			if i >= len(want) || line.Time.Sub(start) != want[i] {
				t.Errorf("line %d, %q: %v after the start", i, line.Message, line.Time.Sub(start))
			}
			if !strings.HasSuffix(line.Source().File, "/lines.go") {
				t.Errorf("line %d, %q: the source is %v", i, line.Message, line.Source())
			}
		}
		if len(lines.all) != len(want) {
			t.Errorf("%d lines, want %d", len(lines.all), len(want))
		}
	})
}

// records is a handler that keeps the lines.
type records struct {
	mu  sync.Mutex
	all []slog.Record
}

func (*records) Enabled(context.Context, slog.Level) bool { return true }

func (r *records) Handle(_ context.Context, line slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, line)
	return nil
}

func (r *records) WithAttrs([]slog.Attr) slog.Handler { return r }

func (r *records) WithGroup(string) slog.Handler { return r }

// The default logger may be set after the hooks were made.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(os.Stderr) // slog.SetDefault changed both
		log.SetFlags(log.LstdFlags)
	})
	hooks := dibsslog.Hooks(nil, dibsslog.Config{})
	logger, out := newLogger(slog.LevelDebug)
	slog.SetDefault(logger)
	hooks.Lost(t.Context(), dibs.Lost{LockInfo: dibs.LockInfo{Names: []string{"a"}, Kind: dibs.KindMutex}, Reason: dibs.ReasonRevoked})
	wantLines(t, strings.TrimSpace(out.String()), `level=ERROR msg="lease lost" name=a kind=mutex held=0s reason=`+string(dibs.ReasonRevoked))
}

func TestLostAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := inBubble(t, memstore.New(), dibsslog.Config{Acquired: dibsslog.Off}, func(locks *dibs.Client) {
			lock(t, locks.Mutex("a"), dibs.MaxHold(time.Second))
			time.Sleep(2 * time.Second)
			lock(t, locks.Mutex("b"))
		})
		wantLines(t, have,
			`level=ERROR msg="lease lost" name=a kind=mutex held=980ms reason=max_hold err="dibs: lease on \"a\" lost: held too long"`,
			`level=INFO msg="lease ended by Close" name=b kind=mutex held=0s reason=closed err="dibs: lease on \"b\" lost: client closed"`,
		)
	})
}

func TestEventsWithoutALease(t *testing.T) {
	logger, out := newLogger(slog.LevelDebug)
	h := dibsslog.Hooks(logger, dibsslog.Config{})
	h.TermFailed(t.Context(), dibs.TermFailed{Name: "leader", RetryIn: time.Second, Err: errDown})
	h.Degraded(context.Background(), dibs.Degraded{Err: errors.New("no subscription")})
	h.Degraded(context.Background(), dibs.Degraded{})
	wantLines(t, strings.TrimSpace(out.String()),
		fmt.Sprintf(`level=WARN msg="campaign failed" name=leader retry=1s err=%q`, errDown.Error()),
		`level=WARN msg="waiters poll: the lock store cannot notify them" err="no subscription"`,
		`level=INFO msg="waiters are notified again"`)
}

// A level may change while the program runs, and Off holds for each event.
func TestLevels(t *testing.T) {
	logger, out := newLogger(slog.LevelInfo)
	var acquired slog.LevelVar
	h := dibsslog.Hooks(logger, dibsslog.Config{Acquired: &acquired})
	acquired.Set(slog.LevelDebug)
	h.AcquireEnd(t.Context(), dibs.AcquireEnd{})
	acquired.Set(slog.LevelInfo)
	h.AcquireEnd(t.Context(), dibs.AcquireEnd{})
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
	logger, out = newLogger(dibsslog.Off) // enables everything
	callAll(t, dibsslog.Hooks(logger, off))
	wantLines(t, out.String(), "")
	callAll(t, dibsslog.Hooks(logger, dibsslog.Config{SlowWait: time.Second}))
	if n := strings.Count(out.String(), "\n"); n != 12 {
		t.Errorf("%d lines, want one of each event:\n%s", n, out)
	}
}

var off = dibsslog.Config{
	Acquired: dibsslog.Off, Slow: dibsslog.Off, Busy: dibsslog.Off, Failed: dibsslog.Off,
	RenewFailed: dibsslog.Off, Lost: dibsslog.Off, Closed: dibsslog.Off,
	Released: dibsslog.Off, ReleaseFailed: dibsslog.Off,
	TermFailed: dibsslog.Off, Degraded: dibsslog.Off, Recovered: dibsslog.Off, SlowWait: time.Second,
}

// callAll calls each hook with each event that has a level.
func callAll(t *testing.T, h dibs.Hooks) {
	ctx := t.Context()
	h.AcquireEnd(ctx, dibs.AcquireEnd{})
	h.AcquireEnd(ctx, dibs.AcquireEnd{Waited: time.Second})
	h.AcquireEnd(ctx, dibs.AcquireEnd{Err: &dibs.BusyError{Name: "n"}})
	h.AcquireEnd(ctx, dibs.AcquireEnd{Err: errDown})
	h.RenewFailed(ctx, dibs.RenewFailed{Err: errDown})
	h.Lost(ctx, dibs.Lost{Reason: dibs.ReasonExpired, Err: dibs.ErrLost})
	h.Lost(ctx, dibs.Lost{Reason: dibs.ReasonClosed, Err: dibs.ErrLost})
	h.Released(ctx, dibs.Released{})
	h.Released(ctx, dibs.Released{Err: errDown})
	h.TermFailed(ctx, dibs.TermFailed{Err: errDown})
	h.Degraded(context.Background(), dibs.Degraded{Err: errDown})
	h.Degraded(context.Background(), dibs.Degraded{})
}

type traceKey struct{}

// tracing is a handler that adds a value from the context.
type tracing struct{ slog.Handler }

func (h tracing) Handle(ctx context.Context, r slog.Record) error {
	r.AddAttrs(slog.Any("trace", ctx.Value(traceKey{})))
	return h.Handler.Handle(ctx, r)
}

func TestHandlerSeesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := newLogger(slog.LevelDebug)
		locks := dibs.New(memstore.New(), dibs.Observe(dibsslog.Hooks(slog.New(tracing{logger.Handler()}), dibsslog.Config{})))
		ctx := context.WithValue(t.Context(), traceKey{}, "7f")
		if err := locks.Mutex("n").Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := locks.Mutex("n").Lock(ctx, dibs.MaxHold(time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := locks.Close(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "trace=7f"); n != 4 || strings.Count(out.String(), "\n") != 4 {
			t.Errorf("lines\n%s\nwant 4, each with the trace", out)
		}
	})
}

// structs is a handler that prints values' fields, as some do.
type structs struct {
	slog.Handler
	out *strings.Builder
}

func (h structs) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(h.out, "%#v\n", a.Value.Any())
		return true
	})
	return nil
}

func TestNoTokens(t *testing.T) {
	var out strings.Builder
	logger, _ := newLogger(slog.LevelDebug)
	h := dibsslog.Hooks(slog.New(structs{logger.Handler(), &out}), dibsslog.Config{})
	const token = "my-own-token-of-the-lease"
	info := dibs.LockInfo{Names: []string{"n"}, Token: token}
	h.AcquireEnd(t.Context(), dibs.AcquireEnd{LockInfo: info, Err: &dibs.BusyError{Name: "n", Holder: token}})
	h.Lost(t.Context(), dibs.Lost{LockInfo: info, Err: &dibs.LostError{Name: "n", Token: token, Reason: dibs.ReasonExpired}})
	h.Released(t.Context(), dibs.Released{LockInfo: info})
	if out.Len() == 0 || strings.Contains(out.String(), token) {
		t.Errorf("lines %s", out.String())
	}
}

func TestDisabledLevelsDoNotAllocate(t *testing.T) {
	logger, _ := newLogger(slog.LevelError + 1)
	ctx, h := t.Context(), dibsslog.Hooks(logger, dibsslog.Config{SlowWait: time.Second})
	info := dibs.LockInfo{Names: []string{"n", "m"}, Label: "l"}
	for name, call := range map[string]func(){
		"AcquireEnd":  func() { h.AcquireEnd(ctx, dibs.AcquireEnd{LockInfo: info, Fence: 7}) },
		"busy":        func() { h.AcquireEnd(ctx, dibs.AcquireEnd{LockInfo: info, Err: dibs.ErrBusy}) },
		"RenewFailed": func() { h.RenewFailed(ctx, dibs.RenewFailed{LockInfo: info, Err: errDown}) },
		"Lost":        func() { h.Lost(ctx, dibs.Lost{LockInfo: info, Err: dibs.ErrLost}) },
		"Released":    func() { h.Released(ctx, dibs.Released{LockInfo: info}) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}
