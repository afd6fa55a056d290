package cohort_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/memstore"
)

// Shutdown waits for the local lease in use. The calls that wait end, and no pass follows.
func TestShutdownWaitsForACohort(t *testing.T) {
	for _, linger := range []time.Duration{0, 5 * time.Second} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			c := dibs.New(s)
			group := cohort.New(c.Mutex("n"), cohort.Passes(1000), cohort.IdleHold(linger))
			held := lock(t, group)
			ended := make(chan error, 3)
			for range 3 {
				go func() {
					_, err := group.Lock(t.Context())
					ended <- err
				}()
			}
			synctest.Wait()
			result := make(chan error, 1)
			go func() { result <- c.Shutdown(t.Context()) }()
			for range 3 {
				if err := <-ended; !errors.Is(err, dibs.ErrClosed) {
					t.Errorf("a call that waits: %v, want ErrClosed", err)
				}
			}
			if _, err := group.Lock(t.Context()); !errors.Is(err, dibs.ErrClosed) {
				t.Errorf("a further call: %v, want ErrClosed", err)
			}
			time.Sleep(time.Minute)
			wantErr(t, held.Err())
			select {
			case err := <-result:
				t.Fatalf("Shutdown has returned %v", err)
			default:
			}
			begin := time.Now()
			wantErr(t, held.Unlock())
			wantErr(t, <-result)
			if took := time.Since(begin); took != 0 {
				t.Errorf("linger %v: Shutdown returned %v after the Unlock", linger, took)
			}
			wantFree(t, s)
		})
	}
}

// A store lease that lingers is released at once.
func TestShutdownEndsLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := dibs.New(s)
		group := cohort.New(c.Mutex("n"), cohort.Passes(2), cohort.IdleHold(10*time.Second))
		wantErr(t, lock(t, group).Unlock())
		synctest.Wait()
		begin := time.Now()
		wantErr(t, c.Shutdown(t.Context()))
		if took := time.Since(begin); took != 0 {
			t.Errorf("Shutdown took %v", took)
		}
		wantFree(t, s)
	})
}

// Work under a lock of a cohort, or of the Client, may acquire further locks, also in a cohort.
func TestShutdownLetsTheWorkOfACohortContinue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := dibs.New(s)
		passes := cohort.Passes(2)
		group, inner := cohort.New(c.Mutex("n"), passes), cohort.New(c.Mutex("inner"), passes)
		result := make(chan error, 1)
		nothing := func(context.Context) error { return nil }
		other, err := open(t, s).Mutex("inner").Lock(t.Context())
		wantErr(t, err)
		time.AfterFunc(time.Minute, func() { wantErr(t, other.Unlock()) })
		ended := make(chan error, 1)
		go func() { ended <- inner.Do(t.Context(), nothing) }() // it acquires the store lease, for both calls
		synctest.Wait()
		wantErr(t, group.Do(t.Context(), func(ctx context.Context) error {
			go func() { result <- c.Shutdown(t.Context()) }()
			synctest.Wait()
			return errors.Join(inner.Do(ctx, nothing), c.Mutex("m").Do(ctx, nothing))
		}))
		wantErr(t, <-result)
		if err := <-ended; !errors.Is(err, dibs.ErrClosed) {
			t.Errorf("a call without a lock: %v, want ErrClosed", err)
		}
	})
}
