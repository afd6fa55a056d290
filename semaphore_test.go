package dibs_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// permits queues for n of a semaphore's permits, in its own client.
func permits(t *testing.T, s driver.Store, n, of int, options ...dibs.Option) *lockCall {
	sem := open(t, s).Semaphore("n", of, options...)
	return queue(func() (*dibs.Lease, error) { return sem.Permits(n).Lock(t.Context()) })
}

func TestSemaphoreLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		sem := open(t, s).Semaphore("n", 5)
		a, b := permits(t, s, 3, 5), permits(t, s, 2, 5)
		wantHeld(t, a, b)
		_, err := sem.Permits(1).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, b)
		_, err = sem.Permits(3).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		l, err := sem.Permits(2).TryLock(t.Context())
		wantErr(t, err)
		if l.Fence() <= a.lease.Fence() {
			t.Errorf("fence %d after %d", l.Fence(), a.lease.Fence())
		}
		wantErr(t, l.Unlock())
		unlock(t, a)
		wantFree(t, s, "n")
	})
}

// Whatever is requested, and whoever gives up, the held permits never exceed the limit,
// and nothing is left.
func TestSemaphoreUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const permits = 7
		s := memstore.New()
		var mu sync.Mutex
		held, most, runs := 0, 0, 0
		var group sync.WaitGroup
		for i := range 50 {
			sem := open(t, s).Semaphore("n", permits)
			r := rand.New(rand.NewPCG(1, uint64(i)))
			group.Go(func() {
				for range 20 {
					n := 1 + r.IntN(permits)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(400))*time.Millisecond)
					l, err := sem.Permits(n).Lock(ctx)
					cancel()
					if err != nil {
						wantErr(t, err, dibs.ErrBusy)
						continue
					}
					mu.Lock()
					held += n
					most, runs = max(most, held), runs+1
					mu.Unlock()
					time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
					mu.Lock()
					held -= n
					mu.Unlock()
					wantErr(t, l.Unlock())
				}
			})
		}
		group.Wait()
		waitUntilFree(t, s, "n")
		if most != permits || runs < 100 {
			t.Errorf("%d held at once in %d runs, want %d and many", most, runs, permits)
		}
	})
}

// Small requests that would fit do not overtake a large request at the head.
func TestLargeRequestIsNotOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := permits(t, s, 2, 5), permits(t, s, 2, 5)
		large := permits(t, s, 4, 5)
		l1, l2 := permits(t, s, 1, 5), permits(t, s, 1, 5)
		wantHeld(t, a, b)
		time.Sleep(time.Minute)
		wantWaiting(t, large, l1, l2)
		_, err := open(t, s).Semaphore("n", 5).Permits(1).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, a)
		wantWaiting(t, large, l1, l2) // 3 of 4 are free
		unlock(t, b)
		wantHeld(t, large, l1) // and the small request that fits beside it, in the same step
		wantWaiting(t, l2)
		unlock(t, large)
		wantHeld(t, l2)
	})
}

func TestBadSemaphore(t *testing.T) {
	c := open(t, unusedStore{t})
	fn := func(context.Context) error { t.Error("fn was called"); return nil }
	for _, bad := range []struct {
		name       string
		permits, n int
		option     dibs.Option
	}{
		{name: "n", permits: 3, n: 0}, {name: "n", permits: 3, n: -1}, {name: "n", permits: 3, n: 4},
		{name: "n", permits: 0, n: 1}, {name: "n", permits: -1, n: 1}, {name: "n", permits: 0, n: 0}, {name: "n", permits: -1, n: -1},
		{name: "n", permits: driver.Unlimited + 1, n: 1},
		{name: "", permits: 3, n: 1}, {name: "n", permits: 3, n: 1, option: dibs.TTL(0)},
	} {
		sem := c.Semaphore(bad.name, bad.permits, bad.option)
		permits := sem.Permits(bad.n)
		for what, acquire := range map[string]func(context.Context, ...dibs.Option) (*dibs.Lease, error){"Lock": permits.Lock, "TryLock": permits.TryLock} {
			if l, err := acquire(t.Context()); l != nil || !errors.Is(err, dibs.ErrInvalid) {
				t.Errorf("%s of %+v: %v, %v", what, bad, l, err)
			}
		}
		if bad.permits < 1 || bad.permits > driver.Unlimited || bad.name == "" || bad.option != (dibs.Option{}) {
			wantErr(t, sem.Permits(1).Do(t.Context(), fn), dibs.ErrInvalid)
		}
	}
	wantErr(t, open(t, memstore.New()).Semaphore("n", driver.Unlimited).Permits(1).Do(t.Context(), func(context.Context) error { return nil }))
}

func TestPermitsAreRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := permits(t, s, 1, 2, dibs.TTL(2*time.Second)), permits(t, s, 1, 2, dibs.TTL(2*time.Second))
		wantHeld(t, a, b)
		time.Sleep(time.Hour)
		wantErr(t, errors.Join(a.lease.Err(), b.lease.Err()))
		_, err := open(t, s).Semaphore("n", 2).Permits(1).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
	})
}

func TestPermitsOfADeadHolderExpire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		live, crashed := permits(t, good, 1, 3, dibs.TTL(2*time.Second)), permits(t, f, 2, 3, dibs.TTL(2*time.Second))
		next := permits(t, good, 2, 3)
		f.hangAll()
		begin := time.Now()
		<-crashed.lease.Context().Done()
		wantWaiting(t, next) // the holder knows first
		<-next.done
		wantHeld(t, next)
		if d := time.Since(begin); d > 2*time.Second+10*time.Millisecond {
			t.Errorf("two permits free %v after the crash of their holder, want its TTL of 2s", d)
		}
		wantErr(t, live.lease.Err())
		f.heal()
	})
}

// While a deployment changes the number, each process uses its own, and the held permits
// never exceed the larger number.
func TestRollingChangeOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		small, large := open(t, s).Semaphore("n", 3), open(t, s).Semaphore("n", 5)
		a, b := permits(t, s, 1, 3), permits(t, s, 1, 3)
		c, d := permits(t, s, 1, 5), permits(t, s, 1, 5)
		wantHeld(t, a, b, c, d)
		_, err := small.Permits(1).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		e, err := large.Permits(1).TryLock(t.Context())
		wantErr(t, err)
		_, err = large.Permits(1).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, a, b)
		_, err = small.Permits(1).TryLock(t.Context()) // three of the larger number are held
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, c)
		l, err := small.Permits(1).TryLock(t.Context())
		wantErr(t, err)
		wantErr(t, errors.Join(l.Unlock(), e.Unlock(), d.lease.Unlock()))
		wantFree(t, s, "n")
	})
}

func TestAllPermitsAreAMutex(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		l := lock(t, c, "n")
		_, err := c.Semaphore("n", 5).Permits(1).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		wantErr(t, l.Unlock())
		all := permits(t, s, 5, 5)
		wantHeld(t, all)
		_, err = c.Mutex("n").TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		_, err = c.Semaphore("n", 100).Permits(1).TryLock(t.Context()) // a holder of all permits is exclusive
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, all)
		one := permits(t, s, 1, 5)
		_, err = c.Mutex("n").TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy)
		unlock(t, one)
		wantFree(t, s, "n")
	})
}

func TestSemaphoreDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		sem := open(t, s).Semaphore("n", 2)
		n, err := dibs.Call(t.Context(), sem.Permits(1), func(ctx context.Context) (int, error) {
			l, err := open(t, s).Semaphore("n", 2).Permits(1).TryLock(t.Context())
			wantErr(t, err)
			_, err = open(t, s).Semaphore("n", 2).Permits(1).TryLock(t.Context())
			wantErr(t, err, dibs.ErrBusy)
			return 42, l.Unlock()
		})
		if n != 42 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		wantFree(t, s, "n")
	})
}

// A nested call uses the outer call's permits, if they are enough.
func TestReentrantSemaphore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		sem := c.Semaphore("n", 5)
		l, err := sem.Permits(2).Lock(t.Context())
		wantErr(t, err)
		_, err = sem.Permits(1).Lock(l.Context())
		wantErr(t, err, dibs.ErrReentrant)
		_, err = sem.Permits(3).Lock(l.Context(), dibs.Reentrant())
		wantErr(t, err, dibs.ErrReentrant)
		_, err = c.Mutex("n").Lock(l.Context(), dibs.Reentrant())
		wantErr(t, err, dibs.ErrReentrant)
		inner, err := sem.Permits(2).Lock(l.Context(), dibs.Reentrant())
		wantErr(t, err)
		other := permits(t, s, 3, 5)
		wantHeld(t, other) // the nested call acquired none
		wantErr(t, l.Unlock())
		_, err = open(t, s).Semaphore("n", 5).Permits(1).TryLock(t.Context())
		wantErr(t, err, dibs.ErrBusy) // until the last Unlock
		wantErr(t, inner.Unlock())
		unlock(t, other)
		wantFree(t, s, "n")
	})
}
