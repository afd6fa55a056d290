package dibs_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// slowResize delays the reply to each change to this weight.
func (f *faulty) slowResize(upgrade bool, delay time.Duration) {
	f.set(func(f *faulty) {
		f.resize = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
			reply, err := f.Full.Resize(context.WithoutCancel(ctx), r)
			if upgrade == r.Exclusive() {
				time.Sleep(delay)
			}
			return reply, err
		}
	})
}

// wantReader requires a reader's lease: in the store, for nested calls, and by its fence.
func wantReader(t *testing.T, s driver.Store, c *dibs.Client, l *dibs.Lease) {
	t.Helper()
	state, err := driver.Complete(s).Inspect(t.Context(), "n")
	wantErr(t, err)
	if len(state.Holders) != 1 || state.Holders[0].Weight != 1 || state.Holders[0].Fence != l.Fence() {
		t.Errorf("holders %+v, want one reader with fence %d", state.Holders, l.Fence())
	}
	beside, err := open(t, s).RWMutex("n").Reader().TryLock(t.Context())
	wantErr(t, err)
	if nested, err := c.RWMutex("n").Writer().TryLock(l.Context(), dibs.Reentrant()); err == nil {
		t.Error("a nested call writes beside another reader")
		wantErr(t, nested.Unlock())
	} else {
		wantErr(t, err, dibs.ErrReentrant)
	}
	wantErr(t, beside.Unlock())
}

// If two changes are made at once, the second begins when the first is over. So the client knows
// the store's last change, whatever the order of the replies.
func TestResizesTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		c := open(t, f)
		m := c.RWMutex("n")
		l, err := m.Reader().Lock(t.Context())
		wantErr(t, err)
		f.slowResize(true, 300*time.Millisecond)
		for range 3 {
			upgraded := make(chan error)
			before := l.Fence()
			go func() { upgraded <- l.TryUpgrade(t.Context()) }()
			synctest.Wait()
			wantErr(t, l.Downgrade(t.Context()))
			wantErr(t, <-upgraded)
			if l.Fence() <= before {
				t.Errorf("fence %d after %d", l.Fence(), before)
			}
			wantReader(t, good, c, l)
		}
		wantErr(t, l.Unlock())
	})
}

// A change waits for another no longer than its context or the operation timeout.
func TestWaitForAnotherResizeIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		m := open(t, f).RWMutex("n")
		l, err := m.Reader().Lock(t.Context(), dibs.Timeout(10*time.Second))
		wantErr(t, err)
		f.hangAll()
		first := make(chan error)
		go func() { first <- l.TryUpgrade(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		wantErr(t, l.TryUpgrade(ctx), dibs.ErrUnavailable, context.DeadlineExceeded)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("returned after %v, want the 1s of the context", took)
		}
		wantErr(t, l.Downgrade(t.Context()), dibs.ErrUnavailable)
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("returned after %v, want one operation timeout after the 1s", took)
		}
		wantErr(t, <-first, dibs.ErrUnavailable)
		f.heal()
		wantErr(t, l.Unlock())
	})
}

// From a Downgrade's sending on, no nested call writes: the store may have let readers in. If the
// store refused the change, the lease is as before.
func TestDowngradeCountsFromItsSending(t *testing.T) {
	for name, test := range map[string]struct {
		resize func(f *faulty, ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error)
		err    error
		writes bool // afterwards
	}{
		"answered late": {func(f *faulty, ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
			defer time.Sleep(200 * time.Millisecond)
			return f.Full.Resize(ctx, r)
		}, nil, false},
		"not answered": {func(f *faulty, ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
			_, _ = f.Full.Resize(ctx, r)
			return driver.AcquireReply{}, hang(ctx, r.Until)
		}, dibs.ErrUnavailable, false},
		"refused": {func(_ *faulty, _ context.Context, _ driver.AcquireRequest) (driver.AcquireReply, error) {
			time.Sleep(200 * time.Millisecond)
			return driver.AcquireReply{}, &driver.UnavailableError{Op: "test", Refused: true}
		}, dibs.ErrUnavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f := &faulty{Full: driver.Complete(memstore.New())}
				m := open(t, f).RWMutex("n")
				l, err := m.Writer().Lock(t.Context())
				wantErr(t, err)
				nested := func() error {
					l, err := m.Writer().TryLock(l.Context(), dibs.Reentrant())
					if err == nil {
						wantErr(t, l.Unlock())
					}
					return err
				}
				f.set(func(f *faulty) {
					f.resize = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
						return test.resize(f, ctx, r)
					}
				})
				done := make(chan error)
				go func() { done <- l.Downgrade(t.Context()) }()
				synctest.Wait()
				wantErr(t, nested(), dibs.ErrReentrant)
				if err := <-done; test.err == nil {
					wantErr(t, err)
				} else {
					wantErr(t, err, test.err)
				}
				f.heal()
				if err := nested(); (err == nil) != test.writes {
					t.Errorf("a nested writer: %v, want that it enters: %t", err, test.writes)
				}
				wantErr(t, l.Downgrade(t.Context()))
				wantErr(t, l.TryUpgrade(t.Context()))
				wantErr(t, nested())
				wantErr(t, l.Unlock())
			})
		})
	}
}

// A store that lost its data may answer with a smaller fence. The lease's fence stays.
func TestFenceOfLeaseNeverDecreases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		m := open(t, f).RWMutex("n")
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		f.set(func(f *faulty) {
			f.resize = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				reply, err := f.Full.Resize(ctx, r)
				reply.Fence = 7
				return reply, err
			}
		})
		before := l.Fence()
		wantErr(t, l.Downgrade(t.Context()))
		if l.Fence() != before {
			t.Errorf("fence %d after %d", l.Fence(), before)
		}
		wantErr(t, l.Unlock())
	})
}

// Several unanswered upgrades arrive late, the first arrives last. A Downgrade waits for all.
func TestDowngradeAfterLateUpgrades(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		c := open(t, f)
		m := c.RWMutex("n")
		l, err := m.Reader().Lock(t.Context(), dibs.Timeout(10*time.Second))
		wantErr(t, err)
		var delivered atomic.Int32
		f.set(func(f *faulty) {
			f.resize = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				time.AfterFunc(time.Until(r.Until), func() {
					if reply, err := driver.Complete(good).Resize(context.WithoutCancel(ctx), r); err == nil && reply.Held {
						delivered.Add(1)
					}
				})
				return driver.AcquireReply{}, hang(ctx, r.Until)
			}
		})
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		wantErr(t, l.TryUpgrade(cancelled), dibs.ErrUnavailable) // it arrives after 5 s
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wantErr(t, l.TryUpgrade(short), dibs.ErrUnavailable)
		f.heal()
		wantErr(t, l.Downgrade(t.Context()))
		time.Sleep(12 * time.Second)
		if n := delivered.Load(); n < 2 {
			t.Fatalf("%d late upgrades had an effect: the test proves nothing", n)
		}
		wantReader(t, good, c, l)
		wantErr(t, l.Unlock())
	})
}

// A change does not overtake an earlier unanswered change. If that may arrive for longer than the
// operation timeout, nothing is sent.
func TestResizeWhileAnEarlierOneMayArrive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		f, good := newFaulty()
		c := open(t, f)
		m := c.RWMutex("n")
		f.set(func(f *faulty) {
			f.acquire = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				defer time.Sleep(timeout * 9 / 10) // a store this slow gets a single try
				return f.Store.Acquire(ctx, c)
			}
			f.resize = func(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
				return driver.AcquireReply{}, hang(ctx, c.Until)
			}
		})
		l, err := m.Reader().Lock(t.Context(), dibs.Timeout(timeout))
		wantErr(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		wantErr(t, l.TryUpgrade(ctx), dibs.ErrUnavailable)
		f.heal()
		begin := time.Now()
		if err := l.Downgrade(t.Context()); !errors.Is(err, dibs.ErrUnavailable) || !strings.Contains(err.Error(), "may still arrive") {
			t.Errorf("%v, want that the earlier change may still arrive", err)
		}
		if took := time.Since(begin); took != timeout {
			t.Errorf("returned after %v, want %v", took, timeout)
		}
		wantErr(t, l.Downgrade(t.Context()))
		wantReader(t, good, c, l)
		wantErr(t, l.Unlock())
	})
}
