package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/memstore"
)

// An unusedStore fails its test when it is called.
type unusedStore struct{ t testing.TB }

// no retry follows this error
var errUnexpectedCall = fmt.Errorf("%w: the store was called", dibs.ErrWrongType)

func (u unusedStore) unexpected(format string, args ...any) error {
	u.t.Helper()
	u.t.Errorf("unexpected store call: "+format, args...)
	return errUnexpectedCall
}

func (u unusedStore) Acquire(_ context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, u.unexpected("acquire %+v", r)
}
func (u unusedStore) Groups(names []string) [][]string { return [][]string{names} }
func (u unusedStore) Resize(_ context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, u.unexpected("resize %+v", r)
}
func (u unusedStore) Revoke(_ context.Context, r driver.RevokeRequest) (bool, error) {
	return false, u.unexpected("revoke %+v", r)
}
func (u unusedStore) Cancel(_ context.Context, r driver.AcquireRequest) error {
	return u.unexpected("cancel %+v", r)
}
func (u unusedStore) Release(_ context.Context, r driver.ReleaseRequest) (bool, error) {
	return false, u.unexpected("release %+v", r)
}
func (u unusedStore) Extend(_ context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	for i, h := range requests {
		errs[i] = u.unexpected("extend %+v", h)
	}
	return errs
}
func (u unusedStore) NotifyWanted(_ context.Context, r driver.WantedRequest) (bool, error) {
	return false, u.unexpected("NotifyWanted %+v", r)
}
func (u unusedStore) Watch(_ context.Context, client string, busy func() bool, _ func(driver.Event)) error {
	return u.unexpected("watch for %s", client)
}
func (u unusedStore) InspectAll(_ context.Context, names []string) ([]driver.State, error) {
	return nil, u.unexpected("inspect %q", names)
}
func (u unusedStore) Inspect(_ context.Context, name string) (driver.State, error) {
	return driver.State{}, u.unexpected("inspect %q", name)
}
func (u unusedStore) List(_ context.Context, pattern string) ([]string, error) {
	return nil, u.unexpected("list %q", pattern)
}

// wantInvalid checks that each way to use a name rejects it, before any I/O, with the option at
// each level.
func wantInvalid(t *testing.T, name string, option dibs.Option) {
	t.Helper()
	ctx := t.Context()
	fn := func(context.Context) error { t.Error("fn was called"); return nil }
	for level, try := range map[string]func() (*dibs.Mutex, []dibs.Option){
		"client": func() (*dibs.Mutex, []dibs.Option) { return open(t, unusedStore{t}, option).Mutex(name), nil },
		"mutex":  func() (*dibs.Mutex, []dibs.Option) { return open(t, unusedStore{t}).Mutex(name, option), nil },
		"call":   func() (*dibs.Mutex, []dibs.Option) { return open(t, unusedStore{t}).Mutex(name), []dibs.Option{option} },
	} {
		m, options := try()
		if l, err := m.Lock(ctx, options...); l != nil || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: Lock: %v, %v; want ErrInvalid", level, l, err)
		}
		if l, err := m.TryLock(ctx, options...); l != nil || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: TryLock: %v, %v; want ErrInvalid", level, l, err)
		}
		if err := m.Do(ctx, fn, options...); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: Do: %v; want ErrInvalid", level, err)
		}
		if n, err := dibs.Call(ctx, m, func(context.Context) (int, error) { return 7, fn(ctx) }, options...); n != 0 || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: Call: %d, %v; want ErrInvalid", level, n, err)
		}
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, dibs.ErrInvalid) {
					t.Errorf("%s: Locker panics with %v, want ErrInvalid", level, err)
				}
			}()
			m.Locker(ctx, options...).Lock()
		}()
	}
}

func TestBadOptions(t *testing.T) {
	for what, option := range map[string]dibs.Option{
		"TTL 0":                dibs.TTL(0),
		"TTL negative":         dibs.TTL(-time.Second),
		"TTL below 10ms":       dibs.TTL(driver.MinTTL - 1),
		"TTL above a day":      dibs.TTL(driver.MaxTTL + 1),
		"TTL the longest":      dibs.TTL(math.MaxInt64),
		"Timeout 0":            dibs.Timeout(0),
		"Timeout negative":     dibs.Timeout(-time.Second),
		"Timeout below 1ms":    dibs.Timeout(time.Millisecond - 1),
		"MaxHold negative":     dibs.MaxHold(-1),
		"MaxHold below 10ms":   dibs.MaxHold(driver.MinTTL - 1),
		"MinHold negative":     dibs.MinHold(-1),
		"MinHold above a day":  dibs.MinHold(driver.MaxTTL + 1),
		"Attempts negative":    dibs.Attempts(-1, time.Second),
		"Attempts 0":           dibs.Attempts(0, time.Second),
		"no Attempts":          dibs.Attempts(0, 0),
		"Attempts the fewest":  dibs.Attempts(math.MinInt, 0),
		"Wait negative":        dibs.Wait(-1),
		"Wait the shortest":    dibs.Wait(math.MinInt64),
		"MaxHold the shortest": dibs.MaxHold(math.MinInt64),
		"Token empty":          dibs.OwnerToken(""),
		"Attempts in the past": dibs.Attempts(1, -time.Second),
		"Label too long":       dibs.Label(strings.Repeat("l", 129)),
		"Label too many bytes": dibs.Label(strings.Repeat("路", 43)),
		"Label with space":     dibs.Label("a b"),
		"Label of a space":     dibs.Label(" "),
		"Label with tab":       dibs.Label("a\tb"),
		"Label with newline":   dibs.Label("a\nb"),
		"Label with escape":    dibs.Label("\x1b[2J"),
		"Label with NUL":       dibs.Label("\x00"),
		"Label with DEL":       dibs.Label("\x7f"),
		"Label not UTF-8":      dibs.Label("\xff"),
		"Token too long":       dibs.OwnerToken(strings.Repeat("t", 257)),
		"Token with space":     dibs.OwnerToken("a b"),
		"Token with newline":   dibs.OwnerToken("a\r\nb"),
		"Token not UTF-8":      dibs.OwnerToken("a\xc3"),
		// U+0020 is not the only space, and invisible characters are not printable.
		"Label with no-break space":    dibs.Label("a\u00a0b"),
		"Label with ideographic space": dibs.Label("a\u3000b"),
		"Label with line separator":    dibs.Label("a\u2028b"),
		"Label with C1 control":        dibs.Label("a\u0085b"),
		"Label with bidi override":     dibs.Label("a\u202eb"),
		"Label with zero-width space":  dibs.Label("a\u200bb"),
		"Token with C1 control":        dibs.OwnerToken("a\u009bb"),
	} {
		t.Run(what, func(t *testing.T) {
			wantInvalid(t, "n", option)
			if l, err := open(t, unusedStore{t}).Attach(t.Context(), dibs.NewHandle("n", "token"), option); l != nil || !errors.Is(err, dibs.ErrInvalid) {
				// Attach uses its own token, which replaces the option's.
				if !strings.HasPrefix(what, "Token ") {
					t.Errorf("Attach: %v, %v; want ErrInvalid", l, err)
				}
			}
		})
	}
}

func TestGoodOptions(t *testing.T) {
	for what, options := range map[string][]dibs.Option{
		"none":                   nil,
		"zero":                   {{}, {}},
		"zero among others":      {{}, dibs.TTL(time.Minute), {}},
		"the shortest TTL":       {dibs.TTL(driver.MinTTL)},
		"the longest TTL":        {dibs.TTL(driver.MaxTTL)},
		"the shortest Timeout":   {dibs.Timeout(time.Millisecond)},
		"the longest Timeout":    {dibs.Timeout(math.MaxInt64)},
		"no Wait":                {dibs.Wait(0)},
		"the longest Wait":       {dibs.Wait(math.MaxInt64)},
		"the longest MaxHold":    {dibs.MaxHold(math.MaxInt64)},
		"the shortest MaxHold":   {dibs.MaxHold(driver.MinTTL)},
		"no MaxHold, no MinHold": {dibs.MaxHold(0), dibs.MinHold(0)},
		"one of the Attempts":    {dibs.Attempts(1, 0)},
		"many Attempts":          {dibs.Attempts(math.MaxInt, math.MaxInt64)},
		"the longest Label":      {dibs.Label(strings.Repeat("l", 128))},
		"no Label":               {dibs.Label("")},
		"a Label with colons":    {dibs.Label(":a:b:")},
		"a Label in UTF-8":       {dibs.Label("naïve/路/🔒")},
		"empty hooks":            {dibs.Observe(dibs.Hooks{})},
		"the nearer wins":        {dibs.TTL(0), dibs.TTL(time.Minute)},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				for _, c := range []*dibs.Client{open(t, s, options...), open(t, s, dibs.Option{})} {
					for _, m := range []*dibs.Mutex{c.Mutex("n", options...), c.Mutex("n", dibs.Option{})} {
						l, err := m.Lock(t.Context(), options...)
						if err != nil {
							t.Fatalf("Lock: %v", err)
						}
						if err := l.Unlock(); err != nil && !errors.Is(err, dibs.ErrLost) {
							t.Errorf("Unlock: %v", err)
						}
					}
				}
			})
		})
	}
}

// An option may be bad if a nearer level overrides it. A good option does not repair a bad option
// at the same level.
func TestNearerOptionWins(t *testing.T) {
	c := open(t, memstore.New(), dibs.TTL(0))
	if l, err := c.Mutex("n", dibs.TTL(time.Minute)).TryLock(t.Context()); err != nil {
		t.Errorf("a good option at the mutex: %v", err)
	} else if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if l, err := c.Mutex("n", dibs.TTL(-1)).TryLock(t.Context(), dibs.TTL(time.Minute)); err != nil {
		t.Errorf("a good option at the call: %v", err)
	} else if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := c.Mutex("n").TryLock(t.Context(), dibs.Wait(time.Minute)); !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("a bad default: %v, want ErrInvalid", err)
	}
}

// Wait and Attempts conflict at the same level; at different levels the nearer option replaces the
// other.
func TestWaitAndAttempts(t *testing.T) {
	wait, attempts := dibs.Wait(time.Minute), dibs.Attempts(3, time.Second)
	for _, both := range [][]dibs.Option{{wait, attempts}, {attempts, wait}, {dibs.Wait(0), attempts}, {{}, attempts, dibs.TTL(time.Minute), wait}} {
		wantBad := func(where string, err error) {
			t.Helper()
			if !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), `"n"`) {
				t.Errorf("%s: error %v, want ErrInvalid with the name", where, err)
			}
		}
		_, err := open(t, unusedStore{t}).Mutex("n").Lock(t.Context(), both...)
		wantBad("call", err)
		_, err = open(t, unusedStore{t}).Mutex("n", both...).Lock(t.Context())
		wantBad("mutex", err)
		_, err = open(t, unusedStore{t}, both...).Mutex("n").Lock(t.Context(), dibs.TTL(time.Minute))
		wantBad("client", err)
		_, err = open(t, splitStore{driver.Complete(unusedStore{t})}).All([]string{"m", "n"}).Lock(t.Context(), both...)
		wantErr(t, err, dibs.ErrInvalid)
		if _, err := open(t, memstore.New(), both...).Mutex("n").Lock(t.Context(), wait); err != nil {
			t.Errorf("a nearer Wait does not replace both: %v", err)
		}
	}
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		lock(t, open(t, s), "n")
		for what, give := range map[string]struct {
			client, mutex, call dibs.Option
			took                time.Duration
		}{
			"Attempts nearer": {wait, dibs.Option{}, attempts, 2 * time.Second},
			"Wait nearer":     {attempts, dibs.Option{}, wait, time.Minute},
			"at the mutex":    {attempts, wait, dibs.Option{}, time.Minute},
			"three levels":    {wait, attempts, dibs.Wait(0), 0},
			"the other way":   {attempts, wait, attempts, 2 * time.Second},
			"no clash above":  {wait, dibs.TTL(time.Minute), attempts, 2 * time.Second},
		} {
			begin := time.Now()
			_, err := open(t, s, give.client).Mutex("n", give.mutex).Lock(t.Context(), give.call)
			wantErr(t, err, dibs.ErrBusy)
			if took := time.Since(begin); took != give.took {
				t.Errorf("%s: gave up after %v, want %v", what, took, give.took)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		_, err := open(t, s).Mutex("n").Lock(ctx)
		wantErr(t, err, dibs.ErrBusy, context.DeadlineExceeded)
		if took := time.Since(begin); took != time.Hour {
			t.Errorf("without Wait the call returned after %v, want 1h", took)
		}
	})
}

// Very long durations work like no limit, even in sums.
func TestVeryLongOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		time.Sleep(time.Hour)
		first := mutex(t, s, "n")
		c := open(t, s, dibs.MaxHold(math.MaxInt64), dibs.Wait(math.MaxInt64), dibs.Timeout(math.MaxInt64))
		second := queue(func() (*dibs.Lease, error) { return c.Mutex("n").Lock(t.Context()) })
		time.Sleep(time.Hour)
		wantWaiting(t, second)
		unlock(t, first)
		wantHeld(t, second)
		time.Sleep(time.Hour)
		wantErr(t, second.lease.Err())
		unlock(t, second)
	})
}

// A nil store does not crash a background goroutine.
func TestNoStore(t *testing.T) {
	for what, store := range map[string]driver.Store{"nil": nil, "nil pointer": (*memstore.Store)(nil), "another": (*faulty)(nil)} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := dibs.New(store, dibs.Observe(dibs.Hooks{Lost: func(context.Context, dibs.Lost) { t.Error("lost") }}))
				ctx := t.Context()
				_, err := c.Mutex("n").Lock(ctx)
				wantErr(t, err, dibs.ErrInvalid)
				_, err = c.All([]string{"a", "b"}).Lock(ctx)
				wantErr(t, err, dibs.ErrInvalid)
				_, err = c.Inspect(ctx, "n")
				wantErr(t, err, dibs.ErrInvalid)
				_, err = listed(c, "*")
				wantErr(t, err, dibs.ErrInvalid)
				_, err = c.Revoke(ctx, "n", dibs.Holder{Fence: 1}, "")
				wantErr(t, err, dibs.ErrInvalid)
				err = c.Election("n").Run(ctx, func(context.Context) error { return nil })
				wantErr(t, err, dibs.ErrInvalid)
				_, err = c.Attach(ctx, dibs.NewHandle("n", "token"))
				wantErr(t, err, dibs.ErrInvalid)
				time.Sleep(time.Minute)
				wantErr(t, c.Close())
			})
		})
	}
}

// With a nil function, no lock is acquired.
func TestNoFunction(t *testing.T) {
	c, ctx := open(t, unusedStore{t}), t.Context()
	_, call := dibs.Call[int](ctx, c.Mutex("n"), nil)
	for what, err := range map[string]error{
		"Mutex":     c.Mutex("n").Do(ctx, nil),
		"Set":       c.All([]string{"m", "n"}).Do(ctx, nil),
		"RWMutex":   c.RWMutex("n").Writer().Do(ctx, nil),
		"Reading":   c.RWMutex("n").Reader().Do(ctx, nil),
		"Semaphore": c.Semaphore("n", 2).Permits(1).Do(ctx, nil),
		"Election":  c.Election("n").Run(ctx, nil),
		"Once":      c.Once("n", time.Minute).Do(ctx, nil),
		"Call":      call,
	} {
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", what, err)
		}
	}
}

// For each type that users hold, a nil or zero value returns an error, and panics nowhere.
func TestZeroValues(t *testing.T) {
	ctx := t.Context()
	number := func(context.Context) (int, error) { return 1, nil }
	_, nilDoer := dibs.Call(ctx, nil, number)
	_, nilMutex := dibs.Call(ctx, dibs.Doer((*dibs.Mutex)(nil)), number)
	wrapped := dibs.Wrap(func(string) dibs.Doer { return (*dibs.SharedLock)(nil) }, func(context.Context, string) error { return nil })
	errs := map[string]error{
		"Call of nil": nilDoer, "Call of a nil Mutex": nilMutex, "Wrap of a nil RWMutex": wrapped(ctx, "n"),
		"Mutex": new(dibs.Mutex).Do(ctx, nothing), "RWMutex": new(dibs.RWMutex).Reader().Do(ctx, nothing), "Semaphore": new(dibs.Semaphore).Permits(1).Do(ctx, nothing),
		"MultiMutex": new(dibs.MultiMutex).Do(ctx, nothing), "Election": new(dibs.Election).Run(ctx, nothing), "Once": new(dibs.Once).Do(ctx, nothing),
	}
	for what, l := range map[string]*dibs.Lease{"nil lease": nil, "zero lease": new(dibs.Lease)} {
		errs[what+": Unlock"], errs[what+": Err"], errs[what+": Detach"] = l.Unlock(), l.Err(), l.Detach()
		errs[what+": Extend"], errs[what+": Context"] = l.Extend(ctx, time.Minute), context.Cause(l.Context())
		errs[what+": TryUpgrade"], errs[what+": Downgrade"] = l.TryUpgrade(ctx), l.Downgrade(ctx)
		withLease, cancel := dibs.WithLease(ctx, l)
		errs[what+": Yield"], errs[what+": WithLease"] = l.Yield(ctx), context.Cause(withLease)
		cancel()
		if l.Name() != "" || l.Token() != "" || l.Fence() != 0 || l.FenceOf("n") != 0 || !l.Deadline().IsZero() || l.Wanted() != nil {
			t.Errorf("the %s has a value", what)
		}
	}
	for what, c := range map[string]*dibs.Client{"nil client": nil, "zero client": new(dibs.Client)} {
		errs[what+": Mutex"], errs[what+": reader"] = c.Mutex("n").Do(ctx, nothing), c.RWMutex("n").Reader().Do(ctx, nothing)
		errs[what+": Semaphore"], errs[what+": All"] = c.Semaphore("n", 2).Permits(1).Do(ctx, nothing), c.All([]string{"m", "n"}).Do(ctx, nothing)
		errs[what+": Election"], errs[what+": Check"] = c.Election("n").Run(ctx, nothing), c.Check(ctx)
		errs[what+": Once"] = c.Once("n", time.Minute).Do(ctx, nothing)
		_, errs[what+": Attach"] = c.Attach(ctx, dibs.NewHandle("n", "token"))
		_, errs[what+": Inspect"] = c.Inspect(ctx, "n")
		_, errs[what+": List"] = listed(c, "*")
		_, errs[what+": Revoke"] = c.Revoke(ctx, "n", dibs.Holder{Fence: 1}, "")
		_, errs[what+": Leader"] = c.Election("n").Leader(ctx)
		errs[what+": Holds"] = c.Holds(ctx, "n")
		if c.Election("n").Resign() {
			t.Errorf("%s: a term was resigned", what)
		}
		wantErr(t, c.Close())
	}
	for what, err := range errs {
		if !errors.Is(err, dibs.ErrInvalid) || !strings.HasPrefix(err.Error(), "dibs: ") {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

// Inspect and Revoke use the client's Timeout.
func TestBadTimeoutOfInspect(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second, math.MinInt64} {
		c := open(t, unusedStore{t}, dibs.Timeout(d))
		_, err := c.Inspect(t.Context(), "n")
		wantErr(t, err, dibs.ErrInvalid)
		_, err = c.Revoke(t.Context(), "n", dibs.Holder{Fence: 1}, "")
		wantErr(t, err, dibs.ErrInvalid)
	}
}

// Timeout limits each store operation, also at a nearer level: for example a lease's release and
// extension.
func TestNearerTimeoutHoldsForTheWholeLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f) // 1s
		l := lock(t, c, "n", dibs.Timeout(100*time.Millisecond))
		f.hangAll()
		begin := time.Now()
		if err := l.Extend(t.Context(), time.Minute); !errors.Is(err, dibs.ErrUnavailable) {
			t.Errorf("Extend: %v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("Extend took %v, with a timeout of 100ms", took)
		}
		begin = time.Now()
		if err := l.Unlock(); !errors.Is(err, dibs.ErrUnavailable) {
			t.Errorf("Unlock: %v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took > 200*time.Millisecond {
			t.Errorf("Unlock took %v, with a timeout of 100ms", took)
		}
		f.heal()
	})
}

func TestBadNames(t *testing.T) {
	for what, name := range map[string]string{
		"empty":           "",
		"too long":        strings.Repeat("n", driver.MaxName+1),
		"far too long":    strings.Repeat("🔒", 1<<18),
		"too many bytes":  strings.Repeat("🔒", driver.MaxName/4+1),
		"not UTF-8":       "a\xff",
		"cut UTF-8":       "🔒"[:3],
		"a surrogate":     "\xed\xa0\x80",
		"an overlong NUL": "\xc0\x80",
	} {
		t.Run(what, func(t *testing.T) {
			wantInvalid(t, name, dibs.Option{})
			c := open(t, unusedStore{t})
			if _, err := c.Inspect(t.Context(), name); !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("Inspect: %v, want ErrInvalid", err)
			}
			if l, err := c.Attach(t.Context(), dibs.NewHandle(name, "token")); l != nil || !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("Attach: %v, %v, want ErrInvalid", l, err)
			}
		})
	}
	c := open(t, unusedStore{t})
	for _, token := range []string{"", " ", "a b", "a\n", "\xff", strings.Repeat("t", 257)} {
		if l, err := c.Attach(t.Context(), dibs.NewHandle("n", token)); l != nil || !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("Attach with token %q: %v, %v, want ErrInvalid", token, l, err)
		}
	}
}

// Extend's duration is checked like a TTL; a bad duration leaves the lease unchanged.
func TestBadExtend(t *testing.T) {
	f, _ := newFaulty()
	c := open(t, f)
	l := lock(t, c, "n")
	for _, d := range []time.Duration{0, -time.Second, driver.MinTTL - 1, driver.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
		if err := l.Extend(t.Context(), d); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("Extend by %v: %v, want ErrInvalid", d, err)
		}
	}
	if calls, _ := f.extendCalls(); calls > 0 {
		t.Errorf("%d store calls", calls)
	}
	if err := l.Err(); err != nil {
		t.Errorf("the lease: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestLabelOf(t *testing.T) {
	c := open(t, memstore.New())
	for _, label := range []string{"", "a", ":", ":a:b:", "naïve/路/🔒", strings.Repeat("l", 64)} {
		l := lock(t, c, "n", dibs.Label(label))
		if have := ownertoken.Label(string(l.Token())); have != label {
			t.Errorf("label %q of token %q, want %q", have, l.Token(), label)
		}
		state, err := c.Inspect(t.Context(), "n")
		if err != nil || len(state.Holders) != 1 || state.Holders[0].Label != label {
			t.Errorf("%+v, %v: want label %q", state, err, label)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
	for _, token := range []string{"", ":", "a:b:c", "a:b:c:d", "::::", "x"} {
		if have := ownertoken.Label(token); have != "" {
			t.Errorf("label %q of %q, want none", have, token)
		}
	}
}

// quote returns a glob that matches only the name.
func quote(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(name)
}

// Any string is either rejected before it is sent, or an ordinary name.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"", "a", " ", "order:42", "{user:7}:cart", "naïve/路/🔒", "a\x00b", "\r\n", `*?[a-z]\`, "[", "\\", "%s%d%n", "\xff", "a\xc3", "\xed\xa0\x80",
		strings.Repeat("n", driver.MaxName), strings.Repeat("n", driver.MaxName+1), "}{", "{}", "dibs:fence:{1}", "\ufeff", "\ufffd",
	} {
		f.Add(name, "label")
		f.Add(name, name)
	}
	f.Fuzz(func(t *testing.T, name, label string) {
		good := name != "" && len(name) <= driver.MaxName && utf8.ValidString(name)
		if err := driver.CheckName(name); good != (err == nil) || err != nil && !errors.Is(err, dibs.ErrInvalid) {
			t.Fatalf("CheckName(%q) = %v, want good: %v", name, err, good)
		}
		if !good {
			wantInvalid(t, name, dibs.Option{})
			return
		}
		s := memstore.New()
		c, rival := open(t, s), open(t, s)
		if _, err := c.Mutex(name).TryLock(t.Context(), dibs.Label(label)); errors.Is(err, dibs.ErrInvalid) {
			wantInvalid(t, name, dibs.Label(label))
			label = ""
		} else if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c = open(t, s)
		l := lock(t, c, name, dibs.Label(label))
		if have := ownertoken.Label(string(l.Token())); l.Name() != name || have != label || strings.ContainsAny(string(l.Token()), " \t\r\n\x00") {
			t.Errorf("name %q, token %q: label %q, want %q", l.Name(), l.Token(), have, label)
		}
		var busy *dibs.BusyError
		if _, err := rival.Mutex(name).TryLock(t.Context()); !errors.As(err, &busy) || busy.Name != name || busy.Holder != l.Token() {
			t.Errorf("another client: %v", err)
		}
		if state, err := rival.Inspect(t.Context(), name); err != nil || state.Name != name || len(state.Holders) != 1 || state.Holders[0].Token != l.Token() {
			t.Errorf("inspect %q: %+v, %v", name, state, err)
		}
		for pattern, want := range map[string]int{"*": 1, quote(name): 1, quote(name) + "?": 0, quote(name + name): 0} {
			if states, err := listed(rival, pattern); err != nil || len(states) != want || want > 0 && states[0].Name != name {
				t.Errorf("list %q: %+v, %v; want %d of %q", pattern, states, err, want, name)
			}
		}
		if err := l.Unlock(); err != nil {
			t.Errorf("unlock %q: %v", name, err)
		}
		if states, err := listed(rival, "*"); err != nil || len(states) != 0 {
			t.Errorf("list after unlock: %+v, %v", states, err)
		}
		for _, text := range []string{fmt.Sprint(busy), name + label} {
			if text == "" {
				t.Error("no text")
			}
		}
	})
}

// An Option is a value, and is printed as Go writes it, without its secrets.
func TestOptionIsAValue(t *testing.T) {
	for want, option := range map[string]dibs.Option{
		"": {}, "TTL(20s)": dibs.TTL(20 * time.Second), "Wait(0s)": dibs.Wait(0), "Attempts(5, 200ms)": dibs.Attempts(5, 200*time.Millisecond),
		`Label("web")`: dibs.Label("web"), "NoRenew()": dibs.NoRenew(), "OwnerToken(…)": dibs.OwnerToken("secret"), "Observe(…)": dibs.Observe(dibs.Hooks{}),
	} {
		if have := fmt.Sprint(option); have != want {
			t.Errorf("have %s, want %s", have, want)
		}
	}
	if wait := dibs.Wait(time.Second); wait != dibs.Wait(time.Second) || wait == dibs.Wait(2*time.Second) {
		t.Error("options cannot be compared")
	}
}

// A call's options cost a single allocation, for their list.
func TestOptionsCostOneAllocation(t *testing.T) {
	locks, ctx := open(t, memstore.New()), t.Context()
	m := locks.Mutex("n")
	without := testing.AllocsPerRun(1000, func() { wantErr(t, m.Do(ctx, nothing)) })
	with := testing.AllocsPerRun(1000, func() {
		wantErr(t, m.Do(ctx, nothing, dibs.Wait(time.Second), dibs.TTL(time.Minute), dibs.Label("web")))
	})
	if with > without+1 {
		t.Errorf("%v allocations with options, %v without", with, without)
	}
}

func BenchmarkOptionsOfCall(b *testing.B) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	ctx, m := context.Background(), locks.Mutex("n")
	for what, call := range map[string]func() error{
		"none": func() error { return m.Do(ctx, nothing) },
		"two":  func() error { return m.Do(ctx, nothing, dibs.Wait(time.Second), dibs.TTL(time.Minute)) },
	} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An owner token ends in no log, whatever the verb.
func TestOptionHidesTheToken(t *testing.T) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, []dibs.Option{dibs.OwnerToken("secret-7")}); strings.Contains(text, "secret-7") {
			t.Errorf("%s: %s", verb, text)
		}
	}
}
