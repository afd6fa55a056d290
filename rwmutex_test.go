package dibs_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A lockCall is a call for a lease that may have to wait.
type lockCall struct {
	done  chan struct{}
	lease *dibs.Lease
	err   error
}

// queue starts the call, and returns when it gets a lease or waits in the queue.
func queue(lock func() (*dibs.Lease, error)) *lockCall {
	x := &lockCall{done: make(chan struct{})}
	go func() {
		defer close(x.done)
		x.lease, x.err = lock()
	}()
	synctest.Wait()
	return x
}

// returned reports whether the call returned.
func (x *lockCall) returned() bool {
	synctest.Wait()
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// wantHeld requires that each call holds its lease.
func wantHeld(t *testing.T, calls ...*lockCall) {
	t.Helper()
	for i, x := range calls {
		if !x.returned() {
			t.Fatalf("call %d still waits", i+1)
		}
		if x.err != nil {
			t.Fatalf("call %d: %v", i+1, x.err)
		}
	}
}

// wantWaiting requires that each call waits.
func wantWaiting(t *testing.T, calls ...*lockCall) {
	t.Helper()
	for i, x := range calls {
		if x.returned() {
			t.Fatalf("call %d does not wait: error %v", i+1, x.err)
		}
	}
}

func unlock(t *testing.T, calls ...*lockCall) {
	t.Helper()
	for _, x := range calls {
		wantErr(t, x.lease.Unlock())
	}
}

// reading and writing queue for a name in their own client.
func reading(t *testing.T, s driver.Store, name string, options ...dibs.Option) *lockCall {
	m := open(t, s).RWMutex(name, options...)
	return queue(func() (*dibs.Lease, error) { return m.Reader().Lock(t.Context()) })
}

func writing(t *testing.T, s driver.Store, name string, options ...dibs.Option) *lockCall {
	m := open(t, s).RWMutex(name, options...)
	return queue(func() (*dibs.Lease, error) { return m.Writer().Lock(t.Context()) })
}

func TestReadersAreSharedAndWritersExclusive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		m := open(t, s).RWMutex("n")
		var readers []*lockCall
		for range 100 {
			readers = append(readers, reading(t, s, "n"))
		}
		wantHeld(t, readers...)
		time.Sleep(time.Minute)
		for _, r := range readers {
			wantErr(t, r.lease.Err())
		}
		_, err := m.Writer().TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		w := writing(t, s, "n")
		unlock(t, readers[1:]...)
		wantWaiting(t, w)
		unlock(t, readers[0])
		wantHeld(t, w)
		_, err = m.Reader().TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		_, err = m.Writer().TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, w)
		wantFree(t, s, "n")
	})
}

// R W R: the second reader would fit, but waits behind the writer.
func TestReaderWaitsBehindAWaitingWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		first, w := reading(t, s, "n"), writing(t, s, "n")
		second := reading(t, s, "n")
		wantHeld(t, first)
		time.Sleep(time.Minute)
		wantWaiting(t, w, second)
		_, err := open(t, s).RWMutex("n").Reader().TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, first)
		wantHeld(t, w)
		wantWaiting(t, second)
		unlock(t, w)
		wantHeld(t, second)
		unlock(t, second)
		wantFree(t, s, "n")
	})
}

func TestAdjacentReadersEnterTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		w := writing(t, s, "n")
		together := []*lockCall{reading(t, s, "n"), reading(t, s, "n"), reading(t, s, "n")}
		w2, last := writing(t, s, "n"), reading(t, s, "n")
		wantWaiting(t, append(together, w2, last)...)
		released := time.Now()
		unlock(t, w)
		wantHeld(t, together...)
		if d := time.Since(released); d != 0 {
			t.Errorf("entered %v after the release", d)
		}
		wantWaiting(t, w2, last)
		unlock(t, together...)
		wantHeld(t, w2)
		wantWaiting(t, last)
		unlock(t, w2)
		wantHeld(t, last)
	})
}

// When a writer gives up, the readers waiting behind it enter.
func TestReadersEnterWhenTheWriterGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		first := reading(t, s, "n")
		c := open(t, s)
		w := queue(func() (*dibs.Lease, error) { return c.RWMutex("n").Writer().Lock(t.Context(), dibs.Wait(time.Second)) })
		second := reading(t, s, "n")
		wantHeld(t, first)
		wantWaiting(t, w, second)
		time.Sleep(time.Second)
		wantHeld(t, second)
		wantErr(t, w.err, dibs.ErrBusy)
	})
}

// Readers come and go, and there is always one. The writer waits only for the readers before it.
func TestWriterIsNotStarvedByReaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		ctx, end := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for i := range 10 {
			m := open(t, s).RWMutex("n")
			group.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				for ctx.Err() == nil {
					wantErr(t, m.Reader().Do(t.Context(), func(context.Context) error {
						time.Sleep(time.Second)
						return nil
					}))
				}
			})
		}
		time.Sleep(5*time.Second + 50*time.Millisecond)
		for range 20 {
			begin := time.Now()
			w := writing(t, s, "n")
			<-w.done
			wantHeld(t, w)
			if d := time.Since(begin); d > time.Second {
				t.Errorf("the writer waited %v, readers read for 1s", d)
			}
			unlock(t, w)
			time.Sleep(1700 * time.Millisecond)
		}
		end()
		group.Wait()
	})
}

// A crashed reader expires alone; other readers are not affected.
func TestDeadReaderExpiresAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		crashed := reading(t, f, "n", dibs.TTL(2*time.Second))
		live := reading(t, good, "n", dibs.TTL(2*time.Second))
		w := writing(t, good, "n")
		f.hangAll()
		<-crashed.lease.Context().Done()
		wantLost(t, crashed.lease.Err(), dibs.ReasonExpired)
		holding := func() int {
			state, err := driver.Complete(good).Inspect(t.Context(), "n")
			wantErr(t, err)
			return state.Holding
		}
		if n := holding(); n != 2 {
			t.Errorf("%d holders when the crashed reader's context has ended, want 2", n)
		}
		time.Sleep(2 * time.Second)
		if n := holding(); n != 1 {
			t.Errorf("%d holders, want the live one", n)
		}
		time.Sleep(time.Minute)
		wantErr(t, live.lease.Err())
		wantWaiting(t, w)
		unlock(t, live)
		wantHeld(t, w)
		f.heal()
	})
}

// The readers at the queue's head enter with the former writer. No writer enters, even if it waits
// before them.
func TestDowngradeLetsReadersInAndNoWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		m := open(t, s).RWMutex("n")
		w := queue(func() (*dibs.Lease, error) { return m.Writer().Lock(t.Context()) })
		r1, r2 := reading(t, s, "n"), reading(t, s, "n")
		w2, r3 := writing(t, s, "n"), reading(t, s, "n")
		fence := w.lease.Fence()
		wantErr(t, w.lease.Downgrade(t.Context()))
		wantHeld(t, r1, r2)
		wantWaiting(t, w2, r3)
		if w.lease.Fence() <= fence {
			t.Errorf("fence %d after the downgrade, %d before", w.lease.Fence(), fence)
		}
		time.Sleep(time.Minute)
		wantErr(t, w.lease.Err())
		unlock(t, r1, r2)
		wantWaiting(t, w2, r3)
		unlock(t, w)
		wantHeld(t, w2)
		wantWaiting(t, r3)
		unlock(t, w2)
		wantHeld(t, r3)
		unlock(t, r3)
		wantFree(t, s, "n")
	})
}

func TestDowngradeBehindAWaitingWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		m := open(t, s).RWMutex("n")
		w := queue(func() (*dibs.Lease, error) { return m.Writer().Lock(t.Context()) })
		w2, r := writing(t, s, "n"), reading(t, s, "n")
		wantErr(t, w.lease.Downgrade(t.Context()))
		wantErr(t, w.lease.Downgrade(t.Context())) // it is a reader already
		wantWaiting(t, w2, r)
		unlock(t, w)
		wantHeld(t, w2)
		wantWaiting(t, r)
	})
}

func TestTryUpgradeOnlyAsTheOnlyReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		m := open(t, s).RWMutex("n", dibs.TTL(2*time.Second))
		r := queue(func() (*dibs.Lease, error) { return m.Reader().Lock(t.Context()) })
		other := reading(t, s, "n")
		begin, fence := time.Now(), r.lease.Fence()
		err := r.lease.TryUpgrade(t.Context())
		var busy *dibs.BusyError
		if !errors.As(err, &busy) || busy.Name != "n" || busy.Holder != other.lease.Token() {
			t.Errorf("%v, want busy: held by %s", err, other.lease.Token())
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("returned after %v", d)
		}
		if r.lease.Fence() != fence {
			t.Errorf("fence %d after a rejected upgrade, %d before", r.lease.Fence(), fence)
		}
		time.Sleep(time.Minute)
		wantErr(t, r.lease.Err()) // still held
		unlock(t, other)
		w := writing(t, s, "n")
		wantErr(t, r.lease.TryUpgrade(t.Context())) // before the waiting writer
		if r.lease.Fence() <= fence || fenceIn(t, r.lease.Context()) != r.lease.Fence() {
			t.Errorf("fence %d, %d in the context; %d before the upgrade", r.lease.Fence(), fenceIn(t, r.lease.Context()), fence)
		}
		later := reading(t, s, "n")
		time.Sleep(time.Minute)
		wantWaiting(t, w, later)
		wantErr(t, r.lease.Err())
		unlock(t, r)
		wantHeld(t, w)
		wantWaiting(t, later)
		if w.lease.Fence() <= r.lease.Fence() {
			t.Errorf("fence %d after %d", w.lease.Fence(), r.lease.Fence())
		}
	})
}

func TestTwoReadersThatUpgradeDoNotDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := open(t, s).RWMutex("n"), open(t, s).RWMutex("n")
		first := queue(func() (*dibs.Lease, error) { return a.Reader().Lock(t.Context()) })
		second := queue(func() (*dibs.Lease, error) { return b.Reader().Lock(t.Context()) })
		wantErr(t, first.lease.TryUpgrade(t.Context()), dibs.ErrBusy)
		wantErr(t, second.lease.TryUpgrade(t.Context()), dibs.ErrBusy)
		unlock(t, first)
		wantErr(t, second.lease.TryUpgrade(t.Context()))
		unlock(t, second)
		wantFree(t, s, "n")
	})
}

func TestResizeOfALostLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		m := open(t, f).RWMutex("n", dibs.TTL(2*time.Second))
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		_, err = good.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: string(l.Token())}) // not yet detected by the client
		wantErr(t, err)
		ctx := l.Context()
		wantLost(t, l.Downgrade(t.Context()), dibs.ReasonMissing)
		wantLost(t, l.Err(), dibs.ReasonMissing)
		wantLost(t, context.Cause(ctx), dibs.ReasonMissing)
		wantLost(t, l.Downgrade(t.Context()), dibs.ReasonMissing)
		wantLost(t, l.TryUpgrade(t.Context()), dibs.ReasonMissing)

		l, err = m.Writer().Lock(t.Context(), dibs.NoRenew())
		wantErr(t, err)
		time.Sleep(2 * time.Second)
		wantLost(t, l.Downgrade(t.Context()), dibs.ReasonExpired)

		l, err = m.Reader().Lock(t.Context())
		wantErr(t, err)
		wantErr(t, l.Unlock())
		wantErr(t, l.TryUpgrade(t.Context()), dibs.ErrReleased)
		wantFree(t, good, "n")
	})
}

// Nothing is sent for a lease that does not belong to the RWMutex.
func TestResizeOfAnotherLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, _ := newFaulty()
		c := open(t, f)
		of := func(l *dibs.Lease, err error) *dibs.Lease { wantErr(t, err); return l }
		leases := map[string]*dibs.Lease{
			"a mutex":      of(c.Mutex("m").Lock(t.Context())),
			"a semaphore":  of(c.Semaphore("s", 3).Permits(1).Lock(t.Context())),
			"a term":       of(c.Election("e").Campaign(t.Context())),
			"a multi-lock": of(c.All([]string{"k", "l"}).Lock(t.Context())),
		}
		f.set(func(f *faulty) {
			f.resize = func(_ context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				t.Errorf("unexpected Resize of %+v", r)
				return driver.AcquireReply{}, errUnexpectedCall
			}
		})
		for what, l := range leases {
			if err := l.Downgrade(t.Context()); !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("downgrade of %s: %v", what, err)
			}
			if err := l.TryUpgrade(t.Context()); !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("upgrade of %s: %v", what, err)
			}
			wantErr(t, l.Err())
		}
	})
}

// A nested call depends on the lease's weight at its start.
func TestResizeOfAReentrantLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		m := c.RWMutex("n")
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		inner, err := m.Writer().Lock(l.Context(), dibs.Reentrant())
		wantErr(t, err)
		wantErr(t, l.Downgrade(t.Context()), dibs.ErrReentrant)
		wantErr(t, inner.Downgrade(t.Context()), dibs.ErrReentrant)
		_, err = open(t, s).RWMutex("n").Reader().TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		wantErr(t, inner.Unlock())
		wantErr(t, l.Downgrade(t.Context()))
		_, err = m.Writer().Lock(l.Context(), dibs.Reentrant()) // it is a reader now
		wantErr(t, err, dibs.ErrReentrant)
		inner, err = m.Reader().Lock(l.Context(), dibs.Reentrant())
		wantErr(t, err)
		wantErr(t, l.TryUpgrade(t.Context()), dibs.ErrReentrant)
		wantErr(t, inner.Unlock())
		wantErr(t, l.TryUpgrade(t.Context()))
		inner, err = m.Writer().Lock(l.Context(), dibs.Reentrant()) // and a writer again
		wantErr(t, err)
		wantErr(t, inner.Unlock())
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
	})
}

func TestWriterAndMutexOfANameExcludeEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		l := lock(t, c, "n")
		_, err := c.RWMutex("n").Writer().TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		_, err = c.RWMutex("n").Reader().TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		wantErr(t, l.Unlock())
		for _, take := range []func(context.Context, ...dibs.Option) (*dibs.Lease, error){c.RWMutex("n").Writer().Lock, c.RWMutex("n").Reader().Lock} {
			l, err := take(t.Context())
			wantErr(t, err)
			_, err = c.Mutex("n").TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			wantErr(t, l.Unlock())
		}
	})
}

func TestReaderAndWriterAreDoers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		rw := open(t, s).RWMutex("n")
		other := open(t, s).RWMutex("n")
		n, err := dibs.Call(t.Context(), rw.Reader(), func(ctx context.Context) (int, error) {
			l, err := other.Reader().TryLock(t.Context())
			wantErr(t, err)
			wantErr(t, l.Unlock())
			_, err = other.Writer().TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			_, err = dibs.Fence(ctx) // a resource must not compare it
			wantErr(t, err, dibs.ErrInvalid)
			return 42, nil
		})
		if n != 42 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		n, err = dibs.Call(t.Context(), rw.Writer(), func(context.Context) (int, error) {
			_, err := other.Reader().TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			return 43, nil
		})
		if n != 43 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		_, err = dibs.Call(t.Context(), rw.Reader(), func(context.Context) (int, error) { return 0, nil }, dibs.TTL(0))
		wantErr(t, err, dibs.ErrInvalid)
		wantFree(t, s, "n")
	})
}

// A change's reply is lost: the second request finds it done.
func TestResizeReplyLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		m := open(t, f).RWMutex("n")
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		lose := func() {
			f.set(func(f *faulty) {
				f.resize = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
					f.set(func(f *faulty) { f.resize = nil })
					if a, err := f.Full.Resize(ctx, r); err != nil || !a.Held {
						t.Errorf("%+v, %v", a, err)
					}
					return driver.AcquireReply{}, errReset
				}
			})
		}
		for _, change := range []struct {
			what   string
			weight int
			make   func(context.Context) error
		}{{"downgrade", 1, l.Downgrade}, {"upgrade", 0, l.TryUpgrade}} {
			lose()
			begin, fence := time.Now(), l.Fence()
			wantErr(t, change.make(t.Context()))
			if d := time.Since(begin); d > 5*time.Millisecond {
				t.Errorf("%s took %v", change.what, d)
			}
			state, err := driver.Complete(s).Inspect(t.Context(), "n")
			if err != nil || state.Holding != 1 || state.Holders[0].Weight != change.weight || state.Holders[0].Fence != l.Fence() || l.Fence() <= fence {
				t.Errorf("%s: %+v, %v; the lease has fence %d after %d", change.what, state, err, l.Fence(), fence)
			}
			time.Sleep(time.Second) // by now the lost request cannot arrive
		}
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
	})
}

func TestResizeUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		m := open(t, f).RWMutex("n", dibs.Timeout(300*time.Millisecond))
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		f.hangAll()
		for what, change := range map[string]func(context.Context) error{"downgrade": l.Downgrade, "upgrade": l.TryUpgrade} {
			begin := time.Now()
			wantErr(t, change(t.Context()), dibs.ErrUnavailable)
			if d := time.Since(begin); d > 300*time.Millisecond {
				t.Errorf("%s took %v, with a timeout of 300ms", what, d)
			}
			wantErr(t, l.Err())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			begin = time.Now()
			wantErr(t, change(ctx), dibs.ErrUnavailable)
			cancel()
			if d := time.Since(begin); d != 10*time.Millisecond {
				t.Errorf("%s took %v, its context ended after 10ms", what, d)
			}
			f.set(func(f *faulty) {
				f.resize = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
					return driver.AcquireReply{}, &driver.UnavailableError{Op: "test", Refused: true}
				}
			})
			begin = time.Now()
			wantErr(t, change(t.Context()), dibs.ErrUnavailable)
			if d := time.Since(begin); d != 0 {
				t.Errorf("rejection of a %s returned after %v", what, d)
			}
			f.hangAll()
		}
		f.heal()
		wantErr(t, l.Downgrade(t.Context())) // again, now that the store answers
		r := reading(t, s, "n")
		wantHeld(t, r)
		unlock(t, r)
		wantErr(t, l.Unlock())
		wantFree(t, s, "n")
	})
}

// Resize does not extend a lease beyond MaxHold.
func TestResizeKeepsMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		m := open(t, s).RWMutex("n", dibs.TTL(3*time.Second), dibs.MaxHold(10*time.Second))
		begin := time.Now()
		l, err := m.Reader().Lock(t.Context())
		wantErr(t, err)
		time.Sleep(8 * time.Second)
		wantErr(t, l.TryUpgrade(t.Context()))
		w := writing(t, s, "n")
		<-w.done
		if d := time.Since(begin); d < 9900*time.Millisecond || d > 10*time.Second+50*time.Millisecond {
			t.Errorf("the next holder entered after %v, want 10s", d)
		}
		wantLost(t, l.Err(), dibs.ReasonMaxHold)
	})
}

// A nested reader may enter a writer or a reader. A nested writer in a reader would
// deadlock.
func TestReentrantRWMutex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		m := c.RWMutex("n")
		wantErr(t, m.Writer().Do(t.Context(), func(ctx context.Context) error {
			_, err := m.Reader().Lock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			_, err = m.Writer().TryLock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			wantErr(t, m.Reader().Do(ctx, func(ctx context.Context) error {
				return c.Mutex("n").Do(ctx, func(context.Context) error { return nil }, dibs.Reentrant())
			}, dibs.Reentrant()))
			_, err = open(t, s).RWMutex("n").Reader().TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			return nil
		}))
		wantFree(t, s, "n")
		wantErr(t, m.Reader().Do(t.Context(), func(ctx context.Context) error {
			_, err := m.Reader().Lock(ctx)
			wantErr(t, err, dibs.ErrReentrant)
			for _, lock := range []func(context.Context, ...dibs.Option) (*dibs.Lease, error){m.Writer().Lock, m.Writer().TryLock, c.Mutex("n").Lock, c.All([]string{"n", "m"}).Lock} {
				_, err := lock(ctx, dibs.Reentrant())
				wantErr(t, err, dibs.ErrReentrant)
			}
			return m.Reader().Do(ctx, func(context.Context) error { return nil }, dibs.Reentrant())
		}))
		wantFree(t, s, "n")
	})
}

func TestBadRWMutex(t *testing.T) {
	c := open(t, unusedStore{t})
	fn := func(context.Context) error { t.Error("fn was called"); return nil }
	for what, m := range map[string]*dibs.RWMutex{"name": c.RWMutex(""), "option": c.RWMutex("n", dibs.TTL(0))} {
		for _, lock := range []func(context.Context, ...dibs.Option) (*dibs.Lease, error){m.Writer().Lock, m.Writer().TryLock, m.Reader().Lock, m.Reader().TryLock} {
			if l, err := lock(t.Context()); l != nil || !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("bad %s: %v, %v", what, l, err)
			}
		}
		wantErr(t, m.Writer().Do(t.Context(), fn), dibs.ErrInvalid)
		wantErr(t, m.Reader().Do(t.Context(), fn), dibs.ErrInvalid)
		wantErr(t, m.Reader().Do(t.Context(), fn), dibs.ErrInvalid)
	}
}

// Run with the race detector.
func TestDowngradeBesideExtend(t *testing.T) {
	m := open(t, memstore.New()).RWMutex("n")
	l, _ := m.Writer().Lock(t.Context())
	var g sync.WaitGroup
	g.Go(func() {
		for range 100 {
			_ = l.Downgrade(t.Context())
		}
	})
	g.Go(func() {
		for range 100 {
			_ = l.Extend(t.Context(), time.Minute)
		}
	})
	g.Wait()
}

// Run with the race detector.
func TestDowngradeBesideUnlock(t *testing.T) {
	m := open(t, memstore.New()).RWMutex("n")
	for range 200 {
		l, _ := m.Writer().Lock(t.Context())
		var g sync.WaitGroup
		g.Go(func() { _ = l.Downgrade(t.Context()) })
		g.Go(func() { _ = l.Unlock() })
		g.Wait()
	}
}

// A downgrade whose first try got no answer may arrive after a later upgrade.
func TestLateDowngradeDoesNotUndoAnUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, s := newFaulty()
		m := open(t, f).RWMutex("n")
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		f.set(func(f *faulty) {
			f.resize = func(_ context.Context, request driver.AcquireRequest) (driver.AcquireReply, error) {
				f.set(func(f *faulty) { f.resize = nil })
				// The connection breaks during the request, which arrives before its
				// Until.
				time.AfterFunc(100*time.Millisecond, func() { _, _ = driver.Complete(s).Resize(context.Background(), request) })
				return driver.AcquireReply{}, errReset
			}
		})
		wantErr(t, l.Downgrade(t.Context()))
		wantErr(t, l.TryUpgrade(t.Context())) // the only reader
		time.Sleep(200 * time.Millisecond)
		if r, err := open(t, s).RWMutex("n").Reader().TryLock(t.Context()); err == nil {
			t.Errorf("a reader (%v) beside a writer (%v)", r.Err(), l.Err())
		}
	})
}

func TestDowngradeDoesNotExtendNoRenew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		m := open(t, s).RWMutex("n", dibs.NoRenew(), dibs.TTL(10*time.Second))
		begin := time.Now()
		l, err := m.Writer().Lock(t.Context())
		wantErr(t, err)
		time.Sleep(8 * time.Second)
		wantErr(t, l.Downgrade(t.Context()))
		<-l.Context().Done()
		wantWithin(t, time.Since(begin), 9*time.Second, 10*time.Second)
	})
}
