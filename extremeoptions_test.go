package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// extremes are durations at both ends of the options' ranges.
var extremes = []time.Duration{
	math.MinInt64, -time.Hour, -1, 0, 1, time.Millisecond - 1, time.Millisecond, driver.MinTTL, time.Hour, driver.MaxTTL,
	58 * 365 * 24 * time.Hour, math.MaxInt64 - 1, math.MaxInt64,
}

// durationOptions are the options with a duration.
var durationOptions = map[string]func(time.Duration) dibs.Option{
	"TTL":      dibs.TTL,
	"Wait":     dibs.Wait,
	"Timeout":  dibs.Timeout,
	"MaxHold":  dibs.MaxHold,
	"MinHold":  dibs.MinHold,
	"Attempts": func(d time.Duration) dibs.Option { return dibs.Attempts(2, d) },
}

// A countingStore counts the requests for a lease.
type countingStore struct {
	*driver.Full
	acquires int
}

func (s *countingStore) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	s.acquires++
	return s.Store.Acquire(ctx, r)
}

// wantDone requires that a call returned at once. Either it was rejected before it sent anything,
// or it worked and left nothing at the store but a reservation.
func wantDone(t *testing.T, what string, s *countingStore, begin time.Time, err error) {
	t.Helper()
	switch invalid := errors.Is(err, dibs.ErrInvalid); {
	case err != nil && !invalid:
		t.Errorf("%s: %v", what, err)
	case invalid && s.acquires > 0:
		t.Errorf("%s: %v, after %d requests", what, err, s.acquires)
	}
	if took := time.Since(begin); took > 0 {
		t.Errorf("%s: took %v", what, took)
	}
	for _, name := range []string{"m", "n"} {
		state, err := s.Inspect(t.Context(), name)
		if err != nil || state.Waiting > 0 {
			t.Errorf("%s: %+v, %v", what, state, err)
		}
		for _, h := range state.Holders {
			if !h.Reserved || h.Remaining <= 0 || h.Remaining > driver.MaxTTL {
				t.Errorf("%s: left %+v", what, h)
			}
		}
	}
}

// Each duration at each level is rejected before anything is sent, or works: a lock is acquired,
// released, and the client closed, without a wait.
func TestExtremeOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for option, make := range durationOptions {
			for _, d := range extremes {
				given := []dibs.Option{make(d)}
				for name, use := range uses {
					for level, options := range [3][3][]dibs.Option{{given, nil, nil}, {nil, given, nil}, {nil, nil, given}} {
						if name == "Attach" && level > 0 {
							continue // it begins with a lock without the option: see TestExtremeAttach
						}
						s := &countingStore{Full: driver.Complete(memstore.New())}
						begin, c := time.Now(), dibs.New(s, options[0]...)
						err := use(t.Context(), c, options[1], options[2])
						wantErr(t, c.Close())
						wantDone(t, fmt.Sprintf("%s of %d ns, %s, level %d", option, d, name, level), s, begin, err)
					}
				}
			}
		}
	})
}

// Attach with each duration is rejected, or returns a lease that can be extended and released.
func TestExtremeAttach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for option, make := range durationOptions {
			for _, d := range extremes {
				s := &countingStore{Full: driver.Complete(memstore.New())}
				first, c := dibs.New(s), dibs.New(s)
				begin, held := time.Now(), lock(t, first, "n")
				l, err := c.Attach(t.Context(), held.Handle(), make(d))
				if err == nil {
					wantErr(t, l.Extend(t.Context(), time.Minute))
					err = l.Unlock()
				} else {
					wantErr(t, err, dibs.ErrInvalid)
				}
				_ = held.Unlock() // it may be lost
				wantErr(t, errors.Join(c.Close(), first.Close()))
				s.acquires = 0
				wantDone(t, fmt.Sprintf("%s of %d ns", option, d), s, begin, err)
			}
		}
	})
}

// Close releases leases with any accepted duration at once.
func TestCloseWithExtremeOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for option, make := range durationOptions {
			for _, d := range extremes {
				for level, options := range [2][2][]dibs.Option{{{make(d)}, nil}, {nil, {make(d)}}} {
					s := &countingStore{Full: driver.Complete(memstore.New())}
					begin, c := time.Now(), dibs.New(s, options[0]...)
					l, err := c.Mutex("n").Lock(t.Context(), options[1]...)
					if err == nil {
						err = l.Err()
					}
					wantErr(t, c.Close())
					wantDone(t, fmt.Sprintf("%s of %d ns, level %d", option, d, level), s, begin, err)
				}
			}
		}
	})
}

// For a call rejected only by the store, both hooks run; for a call rejected by the Client, none.
func TestHooksOfInvalidCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events []string
		hooks := dibs.Observe(dibs.Hooks{
			AcquireStart: func(context.Context, dibs.AcquireStart) context.Context {
				events = append(events, "start")
				return nil
			},
			AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) {
				events = append(events, fmt.Sprintf("end, invalid: %v", errors.Is(e.Err, dibs.ErrInvalid)))
			},
		})
		c := open(t, rejectingStore{driver.Complete(memstore.New())}, hooks)
		for name, use := range uses {
			if name == "Attach" {
				continue // it runs no such hooks
			}
			for _, call := range [][]dibs.Option{nil, {dibs.Timeout(0)}} {
				events = nil
				wantErr(t, use(t.Context(), c, nil, call), dibs.ErrInvalid)
				if want := []string{"start", "end, invalid: true"}; call == nil && !slices.Equal(events, want) || call != nil && events != nil {
					t.Errorf("%s with %d options: events %q", name, len(call), events)
				}
			}
		}
	})
}

// A rejectingStore rejects all names.
type rejectingStore struct{ *driver.Full }

func (rejectingStore) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, fmt.Errorf("%w: not a name of this store", dibs.ErrInvalid)
}

// The errors about Once's intervals and Extend's arguments should use their own names.
func TestExtremeIntervals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, d := range extremes {
			good := d >= driver.MinTTL && d <= driver.MaxTTL
			goodInterval := d >= driver.MinTTL && d <= driver.MaxReserve
			s := &countingStore{Full: driver.Complete(memstore.New())}
			begin, c := time.Now(), dibs.New(s)
			err := c.Once("n", d).Do(t.Context(), nothing)
			wantDone(t, fmt.Sprintf("Once of %d ns", d), s, begin, err)
			if want := fmt.Sprintf("dibs: invalid: interval %v of Once %q: not within 10ms to 8784h0m0s", d, "n"); !goodInterval && fmt.Sprint(err) != want {
				t.Errorf("error %v, want %s", err, want)
			}
			l := lock(t, c, "m")
			err = l.Extend(t.Context(), d)
			if want := fmt.Sprintf("dibs: invalid: Extend by %v of %q: not within 10ms to 24h0m0s", d, "m"); good && err != nil || !good && fmt.Sprint(err) != want {
				t.Errorf("error %v, want %s", err, want)
			}
			wantErr(t, l.Err())
			wantErr(t, l.Unlock())
			wantErr(t, c.Close())
		}
		err := open(t, memstore.New()).Once("n", time.Hour, dibs.MaxHold(time.Minute)).Do(t.Context(), nothing)
		if want := `dibs: invalid: MaxHold 1m0s of "n": below its interval 1h0m0s (to limit the job, give its context a deadline)`; fmt.Sprint(err) != want {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}
