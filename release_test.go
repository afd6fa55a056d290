package dibs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A lease that could not be released by Unlock is released after the outage, for as long as the
// store may keep it. This may be longer than its TTL.
func TestReleaseContinuesWhileStoreKeepsLease(t *testing.T) {
	const ttl, outage = 10 * time.Second, 2 * time.Minute
	for what, acquire := range map[string]func(t *testing.T, c *dibs.Client, f *faulty) *dibs.Lease{
		"a longer extension before": func(t *testing.T, c *dibs.Client, _ *faulty) *dibs.Lease {
			return extended(t, lock(t, c, "n"), time.Hour, ttl)
		},
		"an extension without an answer": func(t *testing.T, c *dibs.Client, f *faulty) *dibs.Lease {
			l := lock(t, c, "n")
			f.set(func(f *faulty) {
				f.extend = func(ctx context.Context, requests []driver.ExtendRequest) []error {
					errs := f.Store.Extend(ctx, requests)
					for i := range errs {
						errs[i] = errReset
					}
					return errs
				}
			})
			wantErr(t, l.Extend(t.Context(), time.Hour), dibs.ErrUnavailable)
			return l
		},
		"a writer that became a reader": func(t *testing.T, c *dibs.Client, _ *faulty) *dibs.Lease {
			m := c.RWMutex("n")
			l, err := m.Writer().Lock(t.Context())
			wantErr(t, err)
			extended(t, l, time.Hour, ttl)
			wantErr(t, l.Downgrade(t.Context()))
			return l
		},
		"several names": func(t *testing.T, c *dibs.Client, _ *faulty) *dibs.Lease {
			l, err := c.All([]string{"n", "o"}).Lock(t.Context())
			wantErr(t, err)
			return extended(t, l, time.Hour, ttl)
		},
		"attached, with the TTL of another owner": func(t *testing.T, c *dibs.Client, f *faulty) *dibs.Lease {
			first := lock(t, open(t, f.Store), "n", dibs.TTL(time.Hour))
			l, err := c.Attach(t.Context(), first.Handle())
			wantErr(t, err)
			wantErr(t, first.Detach())
			return l
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, good := newFaulty()
				l := acquire(t, open(t, f, dibs.TTL(ttl)), f)
				f.hangAll()
				wantErr(t, l.Unlock(), dibs.ErrUnavailable)
				time.Sleep(outage)
				state, err := driver.Complete(good).Inspect(t.Context(), "n")
				if wantErr(t, err); state.Holding == 0 {
					t.Fatal("the store has not kept the lease: the test proves nothing")
				}
				f.heal()
				time.Sleep(5 * time.Second) // longer than a pause between two tries and an operation
				wantNothing(t, good, "n", "o")
			})
		})
	}
}

// The same for a lost lease: the store keeps it for longer than the client.
func TestLostLeaseIsReleasedWhileStoreKeepsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		f, good := newFaulty()
		l := extended(t, lock(t, open(t, f, dibs.TTL(ttl)), "n"), time.Hour, ttl)
		f.hangAll()
		time.Sleep(time.Until(l.Deadline()))
		wantLost(t, l.Unlock(), dibs.ReasonExpired)
		time.Sleep(20 * time.Second)
		state, err := driver.Complete(good).Inspect(t.Context(), "n")
		if wantErr(t, err); state.Holding == 0 {
			t.Fatal("the store has not kept the lease: the test proves nothing")
		}
		f.heal()
		wantNothing(t, good, "n")
	})
}

// extended extends a lease by each duration in turn.
func extended(t *testing.T, l *dibs.Lease, by ...time.Duration) *dibs.Lease {
	t.Helper()
	for _, d := range by {
		wantErr(t, l.Extend(t.Context(), d))
	}
	return l
}

// An unanswered acquire arrives as late as it can, while cancels do not arrive. Its lock is
// cancelled after that.
func TestCancelContinuesWhileStoreKeepsLateAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, good := newFaulty()
		refusal := &driver.UnavailableError{Op: "test", Refused: true}
		arrived := make(chan struct{})
		f.set(func(f *faulty) {
			f.cancel = func(context.Context, driver.AcquireRequest) error { return errReset }
			f.acquire = func(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
				f.set(func(f *faulty) {
					f.acquire = func(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
						return driver.AcquireReply{}, refusal
					}
				})
				time.AfterFunc(time.Until(r.Until), func() {
					defer close(arrived)
					reply, err := good.Acquire(context.WithoutCancel(ctx), r)
					if err != nil || !reply.Held {
						t.Errorf("late acquire: %+v, %v", reply, err)
					}
				})
				return driver.AcquireReply{}, errReset
			}
		})
		c := open(t, f, dibs.Timeout(time.Minute), dibs.TTL(10*time.Second))
		_, err := c.Mutex("n").Lock(t.Context())
		wantErr(t, err, dibs.ErrUnavailable)
		<-arrived
		time.Sleep(3 * time.Second)
		f.set(func(f *faulty) { f.cancel = nil })
		wantNothing(t, good, "n")
	})
}

// An Unlock whose request was not sent says that the lock is still being released: the work is
// done, and must not be repeated.
func TestUnlockSaysUnknownIfUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _ := newFaulty()
		locks := dibs.New(store)
		defer locks.Close()
		lease, err := locks.Mutex("m").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		store.set(func(f *faulty) {
			f.release = func(context.Context, driver.ReleaseRequest) (bool, error) {
				return false, &driver.UnavailableError{Op: "release", Unsent: true, Unreached: true}
			}
		})
		err = lease.Unlock()
		var u *dibs.UnavailableError
		if !errors.As(err, &u) || !u.Unknown {
			t.Errorf("got %#v, want an unknown outcome", err)
		}
		store.heal()
		time.Sleep(time.Minute) // virtual
		if again, err := locks.Mutex("m").TryLock(t.Context()); err != nil {
			t.Errorf("got %v, want the name released in the background", err)
		} else if err := again.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
