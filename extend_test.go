package dibs_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// handedOff returns a lease from a hand-off, whose first TTL is shorter than its own. Its client
// uses the faulty store.
func handedOff(t *testing.T, f *faulty, options ...dibs.Option) *dibs.Lease {
	t.Helper()
	before := lock(t, open(t, f.Store), "n")
	next := queue(func() (*dibs.Lease, error) { return open(t, f).Mutex("n").Lock(t.Context(), options...) })
	wantErr(t, before.Unlock())
	wantHeld(t, next)
	return next.lease
}

// An Extend directly after a hand-off leaves the name reserved for MinHold, also if the holder
// dies before its next renewal.
func TestExtendKeepsMinHold(t *testing.T) {
	for _, noRenew := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			const minHold = 10 * time.Minute
			f, good := newFaulty()
			options := []dibs.Option{dibs.MinHold(minHold)}
			if noRenew {
				options = append(options, dibs.NoRenew())
			}
			l := handedOff(t, f, options...)
			extended(t, l, 20*time.Second)
			f.hangAll() // the holder is dead
			begin := time.Now()
			wantErr(t, lock(t, open(t, good), "n").Unlock())
			if free := time.Since(begin); free < minHold || free > minHold+time.Minute {
				t.Errorf("NoRenew %t: free after %v, want %v", noRenew, free, minHold)
			}
			f.heal()
		})
	}
}

// An Extend directly after a hand-off does not shorten an unrenewed lease.
func TestExtendKeepsTTLOfNoRenew(t *testing.T) {
	for name, test := range map[string]struct {
		options []dibs.Option
		want    time.Duration
	}{
		"TTL":     {nil, 30 * time.Second},
		"MaxHold": {[]dibs.Option{dibs.MaxHold(20 * time.Second)}, 20 * time.Second},
	} {
		bubble(t, func(t *testing.T) {
			f := &faulty{Full: driver.Complete(memstore.New())}
			l := handedOff(t, f, append(test.options, dibs.NoRenew(), dibs.TTL(30*time.Second))...)
			begin := time.Now()
			extended(t, l, 6*time.Second)
			<-l.Context().Done()
			if lasted := time.Since(begin); lasted < test.want*9/10 || lasted > test.want {
				t.Errorf("%s: the lease lasted %v, want %v less the margin", name, lasted, test.want)
			}
			_ = l.Unlock()
		})
	}
}

// A longer Extend counts, and is not repeated.
func TestExtendOfNoRenewIsLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &faulty{Full: driver.Complete(memstore.New())}
		l := handedOff(t, f, dibs.NoRenew(), dibs.TTL(10*time.Second))
		begin := time.Now()
		extended(t, l, time.Minute)
		<-l.Context().Done()
		if lasted := time.Since(begin); lasted < 58*time.Second || lasted > time.Minute {
			t.Errorf("the lease lasted %v, want 1m less the margin", lasted)
		}
		_ = l.Unlock()
	})
}
