package dibs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/memstore"
)

// fenceIn returns the fence in a context.
func fenceIn(t *testing.T, ctx context.Context) uint64 {
	t.Helper()
	fence, err := dibs.Fence(ctx)
	wantErr(t, err)
	return fence
}

// fenceOf returns a name's fence in a context.
func fenceOf(t *testing.T, ctx context.Context, name string) uint64 {
	t.Helper()
	fence, err := dibs.FenceOf(ctx, name)
	wantErr(t, err)
	return fence
}

// Fence returns no number that a resource must not compare.
func TestFenceErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		ctx := t.Context()
		refused := func(what string, ctx context.Context, name string, why string, want error) {
			t.Helper()
			_, err := dibs.Fence(ctx)
			_, ofName := dibs.FenceOf(ctx, name)
			for _, err := range []error{err, ofName} {
				if !errors.Is(err, want) || !strings.Contains(err.Error(), why) {
					t.Errorf("%s: error %v, want %v with %q", what, err, want, why)
				}
			}
		}
		refused("no lease", ctx, "n", "carries no lease", dibs.ErrInvalid)

		wantErr(t, c.RWMutex("r").Reader().Do(ctx, func(ctx context.Context) error {
			refused("a reader", ctx, "r", "shared", dibs.ErrInvalid)
			return nil
		}))
		wantErr(t, c.Semaphore("s", 2).Permits(1).Do(ctx, func(ctx context.Context) error {
			refused("a permit", ctx, "s", "shared", dibs.ErrInvalid)
			return nil
		}))
		all, err := c.Semaphore("s", 2).Permits(2).Lock(ctx)
		wantErr(t, err)
		if fenceIn(t, all.Context()) != all.Fence() { // exclusive
			t.Error("another fence than that of the lease")
		}
		writer, err := c.RWMutex("w").Writer().Lock(ctx)
		wantErr(t, err)
		if fenceOf(t, writer.Context(), "w") != writer.Fence() {
			t.Error("another fence than that of the lease")
		}
		wantErr(t, writer.Downgrade(ctx))
		refused("a writer that has become a reader", writer.Context(), "w", "shared", dibs.ErrInvalid)
		wantErr(t, writer.TryUpgrade(ctx))
		fenceIn(t, writer.Context())

		l := lock(t, c, "n")
		within := l.Context()
		_, err = dibs.FenceOf(within, "another")
		wantErr(t, err, dibs.ErrInvalid)
		wantErr(t, l.Unlock())
		refused("released", within, "n", `"n"`, dibs.ErrReleased)
		lost := lock(t, c, "n", dibs.MaxHold(time.Second))
		within = lost.Context()
		time.Sleep(time.Second)
		refused("lost", within, "n", `"n"`, dibs.ErrLost)
		attached, err := c.Attach(ctx, dibs.NewHandle("s", string(all.Token())))
		wantErr(t, err)
		refused("attached without a fence", attached.Context(), "s", "attached", dibs.ErrInvalid)
		attached, err = open(t, s).Attach(ctx, all.Handle())
		wantErr(t, err)
		if fenceIn(t, attached.Context()) != all.Fence() {
			t.Error("the attached lease has another fence")
		}
		one, err := c.RWMutex("shared").Reader().Lock(ctx)
		wantErr(t, err)
		attached, err = open(t, s).Attach(ctx, one.Handle())
		wantErr(t, err)
		refused("an attached reader", attached.Context(), "shared", "attached", dibs.ErrInvalid)
	})
}

// Whether a change of the weight without an answer was made or not, the fence of the reader must not be
// compared.
func TestFenceAfterAnUnansweredUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		reader, err := c.RWMutex("n").Reader().Lock(t.Context())
		wantErr(t, err)
		attached, err := open(t, f).Attach(t.Context(), lock(t, c, "w").Handle())
		wantErr(t, err)
		fenceIn(t, attached.Context())
		f.hangAll()
		wantErr(t, reader.TryUpgrade(t.Context()), dibs.ErrUnavailable)
		_, err = dibs.Fence(reader.Context())
		wantErr(t, err, dibs.ErrInvalid)
		text, err := reader.Handle().MarshalText()
		wantErr(t, err)
		if !strings.HasSuffix(string(text), ` 0:"n"`) {
			t.Errorf("the handle of a reader has a fence: %s", text)
		}
		f.heal()
	})
}

// Do's lease can be inspected, extended and watched. Do releases it.
func TestLeaseOfDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		for name, doer := range doers(c) {
			var after *dibs.Lease
			wantErr(t, doer.Do(t.Context(), func(ctx context.Context) error {
				l, err := dibs.LeaseOf(context.WithValue(ctx, hookKey{}, 1), "n")
				wantErr(t, err)
				state, err := s.Inspect(ctx, "n")
				wantErr(t, err)
				if l.Name() != "n" || l.Fence() != state.Holders[0].Fence || string(l.Token()) != state.Holders[0].Token || l.Context() != ctx {
					t.Errorf("%s: the lease is %q, %d, %q; want that of %+v", name, l.Name(), l.Fence(), l.Token(), state)
				}
				wantErr(t, l.Extend(ctx, 10*time.Minute))
				if left := time.Until(l.Deadline()); left < 9*time.Minute {
					t.Errorf("%s: %v left after Extend", name, left)
				}
				wantErr(t, l.Unlock(), dibs.ErrInvalid)
				wantErr(t, l.Detach(), dibs.ErrInvalid)
				wantErr(t, l.Err())
				leave := queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })
				<-l.Wanted()
				leave()
				after = l
				return ctx.Err()
			}))
			wantErr(t, after.Err(), dibs.ErrReleased)
			wantErr(t, after.Context().Err(), context.Canceled)
			time.Sleep(time.Minute) // Once's interval
		}
		_, err := dibs.LeaseOf(t.Context(), "n")
		wantErr(t, err, dibs.ErrInvalid)
	})
}

// LeaseOf returns the lease on the given name, and the innermost if there are several.
func TestLeaseOfName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		outer := lock(t, c, "outer")
		wantErr(t, c.All([]string{"a", "b"}).Do(outer.Context(), func(ctx context.Context) error {
			of := func(name string) *dibs.Lease {
				l, err := dibs.LeaseOf(ctx, name)
				wantErr(t, err)
				return l
			}
			if of("outer") != outer || of("a") != of("b") || of("a").FenceOf("b") != fenceOf(t, ctx, "b") {
				t.Error("another lease than that of the name")
			}
			_, err := dibs.LeaseOf(ctx, "c")
			wantErr(t, err, dibs.ErrInvalid)
			return c.Mutex("a", dibs.Reentrant()).Do(ctx, func(nested context.Context) error {
				l, err := dibs.LeaseOf(nested, "a")
				wantErr(t, err)
				if l == of("a") || l.Fence() != of("a").Fence() {
					t.Error("the nested call has the Lease of the outer one, or another lease")
				}
				return nil
			})
		}))
		wantErr(t, outer.Unlock()) // it is Lock's
	})
}

// After a Yield, the Lease is the new lease. An outer lock is yielded only by its name.
func TestLeaseOfAfterYield(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		wantErr(t, c.Mutex("outer").Do(t.Context(), func(ctx context.Context) error {
			return c.Mutex("inner").Do(ctx, func(ctx context.Context) error {
				outer, err := dibs.LeaseOf(ctx, "outer")
				wantErr(t, err)
				inner, err := dibs.LeaseOf(ctx, "inner")
				wantErr(t, err)
				before, innerBefore, token := outer.Fence(), inner.Fence(), outer.Token()
				got := 0
				for _, name := range []string{"outer", "inner"} {
					go func() {
						wantErr(t, other.Mutex(name).Do(t.Context(), func(context.Context) error { got++; return nil }))
					}()
				}
				synctest.Wait()
				wantErr(t, outer.Yield(ctx))
				if got != 1 || outer.Fence() <= before || outer.Token() == token || inner.Fence() != innerBefore || outer.Err() != nil {
					t.Errorf("%d others ran; fence %d after %d, of the inner lock %d after %d", got, outer.Fence(), before, inner.Fence(), innerBefore)
				}
				wantErr(t, outer.Extend(ctx, time.Minute))
				wantErr(t, c.Holds(ctx, "outer"))
				return ctx.Err()
			})
		}))
		synctest.Wait()
	})
}

// A context that ended before changes nothing.
func TestYieldWithAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			defer queueFor(t, other, func(ctx context.Context) (*dibs.Lease, error) { return other.Mutex("n").Lock(ctx) })()
			ended, cancel := context.WithCancel(ctx)
			cancel()
			l, err := dibs.LeaseOf(ctx, "n")
			wantErr(t, err)
			wantErr(t, l.Yield(ended), context.Canceled)
			wantErr(t, l.Err())
			return ctx.Err()
		}))
	})
}

// WithLease ends with the context or the lease, and carries the lease.
func TestWithLease(t *testing.T) {
	stopped := errors.New("stopped")
	type key struct{}
	for what, test := range map[string]struct {
		end  func(stop context.CancelCauseFunc, l *dibs.Lease, cancel context.CancelFunc)
		want error
		held bool
	}{
		"context": {func(stop context.CancelCauseFunc, _ *dibs.Lease, _ context.CancelFunc) { stop(stopped) }, stopped, true},
		"unlock":  {func(_ context.CancelCauseFunc, l *dibs.Lease, _ context.CancelFunc) { _ = l.Unlock() }, context.Canceled, false},
		"loss":    {func(context.CancelCauseFunc, *dibs.Lease, context.CancelFunc) { time.Sleep(time.Minute) }, dibs.ErrLost, false},
		"cancel":  {func(_ context.CancelCauseFunc, _ *dibs.Lease, cancel context.CancelFunc) { cancel(); cancel() }, context.Canceled, true},
	} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			c := open(t, s)
			l, err := c.Semaphore("n", 3).Permits(2).Lock(t.Context(), dibs.MaxHold(time.Minute))
			wantErr(t, err)
			request, stop := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
			defer stop(nil)
			ctx, cancel := dibs.WithLease(request, l)
			defer cancel()
			wantErr(t, ctx.Err())
			wantErr(t, c.Holds(ctx, "n"))
			if found, err := dibs.LeaseOf(ctx, "n"); found != l || err != nil || ctx.Value(key{}) != "value" || len(guard.Leases(ctx)) != 1 {
				t.Errorf("%s: %v, %v, value %v", what, found, err, ctx.Value(key{}))
			}
			_, err = c.Semaphore("n", 3).Permits(1).TryLock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			test.end(stop, l, cancel)
			synctest.Wait()
			wantErr(t, context.Cause(ctx), test.want)
			if held := l.Err() == nil; held != test.held {
				t.Errorf("%s: held %v, want %v", what, held, test.held)
			}
		})
	}
}

// The context ends at once if the lease is not held.
func TestWithLeaseOfAnEndedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		l := lock(t, c, "n")
		wantErr(t, l.Unlock())
		ctx, cancel := dibs.WithLease(t.Context(), l)
		wantErr(t, context.Cause(ctx), dibs.ErrReleased)
		cancel()
		var of *dibs.Lease
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) (err error) { of, err = dibs.LeaseOf(ctx, "n"); return err }))
		ctx, cancel = dibs.WithLease(t.Context(), of)
		defer cancel()
		wantErr(t, ctx.Err(), context.Canceled)
	})
}

// With Do's lease, the context ends with the work, and survives a Yield.
func TestWithLeaseOfDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		var with context.Context
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			l, err := dibs.LeaseOf(ctx, "n")
			wantErr(t, err)
			var cancel context.CancelFunc
			with, cancel = dibs.WithLease(t.Context(), l)
			t.Cleanup(cancel)
			fence := fenceIn(t, with)
			go func() { wantErr(t, other.Mutex("n").Do(t.Context(), nothing)) }()
			synctest.Wait()
			wantErr(t, l.Yield(with))
			if after := fenceIn(t, with); after <= fence || after != l.Fence() {
				t.Errorf("fence %d after %d", after, fence)
			}
			return with.Err()
		}))
		synctest.Wait()
		wantErr(t, context.Cause(with), context.Canceled)
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			l, err := dibs.LeaseOf(ctx, "n")
			wantErr(t, err)
			with, cancel := dibs.WithLease(t.Context(), l)
			defer cancel()
			<-with.Done()
			return context.Cause(with)
		}, dibs.MaxHold(time.Second)), dibs.ErrLost)
	})
}

// A context with the lease of a Do is that of work under a lock, also for another lock.
func TestLockWithLeaseOfDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			lease, err := dibs.LeaseOf(ctx, "n")
			wantErr(t, err)
			within, cancel := dibs.WithLease(context.Background(), lease)
			defer cancel()
			go func() { wantErr(t, c.Shutdown(context.Background())) }()
			synctest.Wait()
			wantErr(t, c.Mutex("other").Do(within, func(context.Context) error { return nil })) // it continues the work
			wantErr(t, c.Mutex("other").Do(context.Background(), func(context.Context) error { return nil }), dibs.ErrClosed)
			return nil
		}))
	})
}

// A context of WithLease with the lease of a Do is that of work under a lock for all calls.
func TestCallsWithTheLeaseOfDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			l, err := dibs.LeaseOf(ctx, "n")
			wantErr(t, err)
			with, cancel := dibs.WithLease(context.Background(), l)
			defer cancel()
			inner, err := c.Mutex("inner").Lock(with)
			wantErr(t, err)
			wantErr(t, inner.Unlock())
			wantErr(t, errorOf(c.Mutex("n").Lock(with)), dibs.ErrReentrant)
			_, err = c.Mutex("inner").CallSettings(with)
			wantErr(t, err)
			attached, err := c.Attach(with, l.Handle())
			wantErr(t, err)
			return attached.Detach()
		}))
	})
}

// The context of a nested call carries its own handle of the lease. So nobody who has the context can
// unlock the lease of the outer call.
func TestLeaseOfANestedCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		m := c.Mutex("n")
		wantErr(t, m.Do(t.Context(), func(ctx context.Context) error {
			nested, err := m.Lock(ctx, dibs.Reentrant())
			wantErr(t, err)
			if nested.Context() != nested.Context() {
				t.Error("another context at the second call")
			}
			found, err := dibs.LeaseOf(nested.Context(), "n")
			wantErr(t, err)
			wantErr(t, found.Unlock())
			wantErr(t, nested.Unlock())
			return context.Cause(ctx)
		}))
	})
}

// A guard sees a lease once, also if WithLease adds it to a context that carries it already: ReleaseIn
// would not find it the second time.
func TestGuardsSeeALeaseOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		wantErr(t, open(t, s).Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			l, err := dibs.LeaseOf(ctx, "n")
			wantErr(t, err)
			with, cancel := dibs.WithLease(ctx, l)
			defer cancel()
			held, err := guard.In(with, s)
			if len(held) != 1 {
				t.Errorf("%d leases, want one", len(held))
			}
			return err
		}))
	})
}
