package dibs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// A lease that is handed over stays held, whatever its first owner does afterwards.
func TestDetachHandsTheLeaseOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var j journal
		first := dibs.New(s, dibs.TTL(3*time.Second), dibs.Observe(j.all()))
		l := lock(t, first, "n", dibs.Token("request-7"))
		ctx := l.Context()
		attached, err := open(t, s).Attach("n", l.Token())
		wantErr(t, err)
		wantErr(t, attached.Extend(t.Context(), 3*time.Second))
		time.Sleep(10 * time.Second) // both renew it

		wantErr(t, l.Detach())
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cause %v of the context, want Canceled", err)
		}
		if err := l.Err(); !errors.Is(err, dibs.ErrReleased) {
			t.Errorf("error %v, want ErrReleased", err)
		}
		wantErr(t, l.Detach())
		wantErr(t, l.Unlock())
		wantErr(t, first.Close())
		time.Sleep(time.Hour)
		wantErr(t, attached.Err())
		if _, err := open(t, s).Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("error %v, want ErrBusy: the second owner holds it", err)
		}
		wantErr(t, attached.Unlock())
		wantErr(t, lock(t, open(t, s), "n").Unlock())
		want := "start mutex(n 1/1) try=false end mutex(n 1/1) held waited=0s queued=false notified=false released mutex(n 1/1) held=10s <nil>"
		if have := j.String(); have != want {
			t.Errorf("hooks %q, want %q", have, want)
		}
	})
}

// Without another owner, a detached lease ends with its TTL.
func TestDetachWithoutAnotherOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		l := lock(t, open(t, s), "n", dibs.TTL(3*time.Second))
		wantErr(t, l.Detach())
		begin := time.Now()
		wantErr(t, lock(t, open(t, s), "n").Unlock())
		if d := time.Since(begin); d < 2900*time.Millisecond || d > 3100*time.Millisecond {
			t.Errorf("free after %v, want the TTL of 3s", d)
		}
	})
}

func TestDetachRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := open(t, memstore.New())
		lost := lock(t, c, "lost", dibs.MaxHold(time.Second))
		time.Sleep(2 * time.Second)
		wantLost(t, lost.Detach(), dibs.ReasonMaxHold)

		outer := lock(t, c, "n")
		inner, err := c.Mutex("n").Lock(outer.Context(), dibs.Reentrant())
		wantErr(t, err)
		for _, l := range []*dibs.Lease{outer, inner} {
			if err := l.Detach(); !errors.Is(err, dibs.ErrReentrant) {
				t.Errorf("error %v, want ErrReentrant", err)
			}
		}
		wantErr(t, inner.Unlock())
		wantErr(t, outer.Err())
		wantErr(t, outer.Detach())
	})
}
