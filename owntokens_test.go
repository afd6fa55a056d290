package dibs_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/memstore"
)

// callsWithToken are the ways to acquire the name n with a token.
func callsWithToken(ctx context.Context, c *dibs.Client) map[string]func(o ...dibs.Option) (*dibs.Lease, error) {
	return map[string]func(o ...dibs.Option) (*dibs.Lease, error){
		"Lock":    func(o ...dibs.Option) (*dibs.Lease, error) { return c.Mutex("n").Lock(ctx, o...) },
		"TryLock": func(o ...dibs.Option) (*dibs.Lease, error) { return c.Mutex("n").TryLock(ctx, o...) },
		"Attempts": func(o ...dibs.Option) (*dibs.Lease, error) {
			return c.Mutex("n", dibs.Attempts(3, time.Second)).Lock(ctx, o...)
		},
		"reader":     func(o ...dibs.Option) (*dibs.Lease, error) { return c.RWMutex("n").Reader().Lock(ctx, o...) },
		"writer":     func(o ...dibs.Option) (*dibs.Lease, error) { return c.RWMutex("n").Writer().Lock(ctx, o...) },
		"semaphore":  func(o ...dibs.Option) (*dibs.Lease, error) { return c.Semaphore("n", 3).Permits(1).Lock(ctx, o...) },
		"multi-lock": func(o ...dibs.Option) (*dibs.Lease, error) { return c.All([]string{"m", "n"}).Lock(ctx, o...) },
		"election":   func(o ...dibs.Option) (*dibs.Lease, error) { return c.Election("n").Campaign(ctx, o...) },
	}
}

// A lease's token is not granted again, whatever the primitives are, until its last Unlock.
func TestTokenOfALeaseIsRefused(t *testing.T) {
	for _, split := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			var s driver.Store = memstore.New()
			if split {
				s = splitStore{driver.Complete(s)}
			}
			c := open(t, s)
			for what, first := range callsWithToken(t.Context(), c) {
				l, err := first(dibs.OwnerToken("request-1"))
				wantErr(t, err)
				for other, second := range callsWithToken(t.Context(), c) {
					if again, err := second(dibs.OwnerToken("request-1")); again != nil || !errors.Is(err, dibs.ErrReentrant) {
						t.Errorf("%s, then %s with its token: %v, %v; want ErrReentrant", what, other, again, err)
					}
				}
				err = c.Once("n", time.Minute).Do(t.Context(), func(context.Context) error { return nil }, dibs.OwnerToken("request-1"))
				if !errors.Is(err, dibs.ErrReentrant) {
					t.Errorf("%s, then Once with its token: %v; want ErrReentrant", what, err)
				}
				wantErr(t, l.Err())
				wantErr(t, l.Unlock())
				for other, next := range callsWithToken(t.Context(), c) {
					l, err := next(dibs.OwnerToken("request-1"))
					if err != nil {
						t.Errorf("%s with the token after Unlock: %v", other, err)
						continue
					}
					wantErr(t, l.Unlock())
				}
			}
		})
	}
}

// If many calls with the same token begin at the same moment, a single call gets the lock.
func TestCallsWithOneTokenExcludeEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		for range 50 {
			blocking := lock(t, other, "n")
			var granted, refused atomic.Int32
			var calls sync.WaitGroup
			for range 8 {
				calls.Go(func() {
					err := c.Mutex("n").Do(t.Context(), func(context.Context) error {
						granted.Add(1)
						time.Sleep(time.Second)
						return nil
					}, dibs.OwnerToken("job-7"))
					if errors.Is(err, dibs.ErrReentrant) {
						refused.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			wantErr(t, blocking.Unlock())
			calls.Wait()
			if granted.Load() != 1 || refused.Load() != 7 {
				t.Fatalf("%d calls got the lock, %d were refused; want 1 and 7", granted.Load(), refused.Load())
			}
		}
	})
}

// A failed call, a call with other names, a nested call and Yield leave the token usable.
func TestTokenIsFreeAfterItsCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := open(t, s), open(t, s)
		token := dibs.OwnerToken("request-1")
		held := lock(t, other, "n")
		for range 2 {
			_, err := c.Mutex("n").Lock(t.Context(), token, dibs.Wait(time.Second))
			wantErr(t, err, dibs.ErrBusy)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Mutex("n").Lock(ended, token)
		wantErr(t, err, context.Canceled)
		wantErr(t, held.Unlock())

		fences := map[uint64]bool{}
		wantErr(t, c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
			wantErr(t, c.Mutex("other").Do(t.Context(), func(context.Context) error { return nil }, token))
			wantErr(t, c.Mutex("n").Do(ctx, func(context.Context) error { return nil }, token, dibs.Reentrant()))
			for range 3 {
				fences[fenceIn(t, ctx)] = true
				waiter := queue(func() (*dibs.Lease, error) {
					return nil, other.Mutex("n").Do(t.Context(), func(context.Context) error { return nil })
				})
				wantWaiting(t, waiter)
				wantErr(t, carried.Yield(ctx, "n"))
				wantHeld(t, waiter)
			}
			return nil
		}, token))
		if len(fences) != 3 {
			t.Errorf("fences %v, want three leases", fences)
		}
		wantErr(t, lock(t, c, "n", token).Unlock())
	})
}

// A lost lease keeps its token until its Unlock, which may still remove the token's locks from the
// store.
func TestTokenOfALostLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := open(t, s)
		lost := lock(t, c, "n", dibs.OwnerToken("request-1"))
		revoked, err := c.Revoke(t.Context(), "n", dibs.Holder{Fence: lost.Fence()}, "")
		wantErr(t, err)
		time.Sleep(time.Minute) // until the next renewal
		if !revoked {
			t.Fatal("not revoked")
		}
		wantErr(t, lost.Err(), dibs.ErrLost)
		_, err = c.Mutex("n").Lock(t.Context(), dibs.OwnerToken("request-1"))
		wantErr(t, err, dibs.ErrReentrant)
		wantErr(t, lost.Unlock(), dibs.ErrLost)
		next := lock(t, c, "n", dibs.OwnerToken("request-1"))
		wantErr(t, lost.Unlock())
		synctest.Wait()
		if _, err := open(t, s).Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("another client: %v, want ErrBusy", err)
		}
		wantErr(t, next.Unlock())
	})
}

// An attached lease has the token as well. Attach itself acquires nothing, so it accepts a token in
// use.
func TestTokenOfAnAttachedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, first := open(t, s), open(t, s)
		l := lock(t, first, "n", dibs.OwnerToken("request-1"))
		attached, err := c.Attach(t.Context(), dibs.NewHandle("n", "request-1"))
		wantErr(t, err)
		_, err = c.Mutex("n").Lock(t.Context(), dibs.OwnerToken("request-1"))
		wantErr(t, err, dibs.ErrReentrant)
		again, err := c.Attach(t.Context(), dibs.NewHandle("n", "request-1"))
		wantErr(t, err)
		wantErr(t, again.Detach())
		_, err = c.Mutex("n").Lock(t.Context(), dibs.OwnerToken("request-1"))
		wantErr(t, err, dibs.ErrReentrant)
		wantErr(t, l.Detach())
		wantErr(t, attached.Unlock())
		wantErr(t, lock(t, c, "n", dibs.OwnerToken("request-1")).Unlock())
	})
}

// Token is for a call only, also if the call has its own.
func TestTokenGivenToALock(t *testing.T) {
	c, ctx := open(t, unusedStore{t}), t.Context()
	token := dibs.OwnerToken("job-7")
	nothing := func(context.Context) error { return nil }
	for what, err := range map[string]error{
		"Mutex":              errorOf(c.Mutex("n", token).Lock(ctx)),
		"Mutex and call":     errorOf(c.Mutex("n", token).Lock(ctx, dibs.OwnerToken("mine"))),
		"TryLock":            errorOf(c.Mutex("n", token).TryLock(ctx)),
		"Do":                 c.Mutex("n", token).Do(ctx, nothing),
		"reader":             errorOf(c.RWMutex("n", token).Reader().Lock(ctx)),
		"writer":             errorOf(c.RWMutex("n", token).Writer().Lock(ctx)),
		"Semaphore":          errorOf(c.Semaphore("n", 2, token).Permits(1).Lock(ctx)),
		"Election":           errorOf(c.Election("n", token).Campaign(ctx)),
		"Run":                c.Election("n", token).Run(ctx, nothing),
		"Once":               c.Once("n", time.Hour, token).Do(ctx, nothing),
		"New":                errorOf(open(t, unusedStore{t}, token).Mutex("n").Lock(ctx)),
		"New and call":       errorOf(open(t, unusedStore{t}, token).Mutex("n").Lock(ctx, dibs.OwnerToken("mine"))),
		"New, of all":        errorOf(open(t, unusedStore{t}, token).All([]string{"m", "n"}).Lock(ctx)),
		"New, of Attach":     errorOf(open(t, unusedStore{t}, token).Attach(ctx, dibs.NewHandle("n", "mine"))),
		"Attach":             errorOf(c.Attach(ctx, dibs.NewHandle("n", "mine"), token)),
		"Attach, same token": errorOf(c.Attach(ctx, dibs.NewHandle("n", "job-7"), token)),
	} {
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

func errorOf(_ *dibs.Lease, err error) error { return err }
