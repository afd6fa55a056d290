package renew

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/internal/lease"
	"github.com/dibslock/dibs/internal/load"
)

// A bench runs a scheduler. It is also its client: the test answers the renewals.
type bench struct {
	*Scheduler[*held]
	now *bootclock.Clock

	mu      sync.Mutex
	answer  func(requests []driver.ExtendRequest) error // result for each request; nil: renewed at once
	sent    [][]string                                  // each request's names
	renewed int                                         // leases
}

// A held is a lease in a bench.
type held struct {
	bench *bench
	place Place
	mu    sync.Mutex
	state lease.State
}

func (h *held) Place() *Place { return &h.place }

func (h *held) LockState() *lease.State {
	h.mu.Lock()
	return &h.state
}

func (h *held) UnlockState() { h.mu.Unlock() }

func (h *held) Commit() bool {
	defer h.mu.Unlock()
	if h.state.DetectEnd() {
		h.bench.Remove(h)
	}
	if h.state.Reason() != lease.Held {
		return false
	}
	at, early := h.state.Times.NextAction()
	return h.bench.Set(h, h.bench.now.Now(), at, early)
}

func (h *held) IsObserved() bool { return false }
func (h *held) RenewFailed()     {}
func (h *held) Renewed()         {}

func (b *bench) Identity() string { return "client" }

func (b *bench) Renewed(leases int, _ time.Duration, _ float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.renewed += leases
}

func (b *bench) Go(job func()) bool {
	go job()
	return true
}

func (b *bench) Extend(_ time.Time, requests []driver.ExtendRequest) ([]error, load.Outcome) {
	b.mu.Lock()
	names := make([]string, len(requests))
	for i, r := range requests {
		names[i] = r.Name
	}
	b.sent = append(b.sent, names)
	answer := b.answer
	b.mu.Unlock()
	errs := make([]error, len(requests))
	if answer != nil {
		err := answer(requests)
		for i := range errs {
			errs[i] = err
		}
	}
	return errs, load.Answered
}

// extended returns the names in the requests since the last call.
func (b *bench) extended() (sent [][]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent, b.sent = b.sent, nil
	return sent
}

func (b *bench) answers(answer func(requests []driver.ExtendRequest) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// begin adds leases that begin now, with a common name prefix.
func (b *bench) begin(names string, n int, ttl time.Duration) (all []*held) {
	for i := range n {
		h := &held{bench: b, state: lease.Granted(driver.AcquireRequest{Name: fmt.Sprint(names, i), Token: "token", Weight: 1, Limit: 1}, 7, ttl)}
		h.LockState().Times.Begin(false, b.now.Now(), b.now.Now(), ttl, false, 0)
		h.Commit()
		all = append(all, h)
	}
	return all
}

// withBench runs a test with a scheduler in a bubble.
func withBench(t *testing.T, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{now: bootclock.New()}
		b.Scheduler = New[*held](b, b.now, load.NewGate(b.now.Now, func() { b.SendMore() }))
		done := make(chan struct{})
		defer synctest.Wait()
		defer close(done)
		go b.Run(done)
		test(t, b)
	})
}

// A lease is renewed while the store answers. It ends when the store no longer has it, or at its
// deadline without an answer.
func TestScheduler(t *testing.T) {
	for name, test := range map[string]struct {
		answer  func(t *testing.T) error
		renewed int
		reason  lease.Reason
	}{
		"answers": {func(*testing.T) error { return nil }, 10, lease.Held},
		"lost":    {func(*testing.T) error { return driver.ErrLost }, 0, lease.Missing},
		"silent":  {func(t *testing.T) error { <-t.Context().Done(); return nil }, 0, lease.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			withBench(t, func(t *testing.T, b *bench) {
				b.answers(func([]driver.ExtendRequest) error { return test.answer(t) })
				l := b.begin("n", 1, 3*time.Second)[0]
				time.Sleep(10*time.Second + time.Millisecond)
				reason := l.LockState().Reason()
				l.UnlockState()
				b.mu.Lock()
				defer b.mu.Unlock()
				if reason != test.reason || b.renewed != test.renewed {
					t.Errorf("reason %d after %d renewals, want %d after %d", reason, b.renewed, test.reason, test.renewed)
				}
				if known := b.Len() == 1; known != (test.reason == lease.Held) {
					t.Errorf("%d leases are scheduled", b.Len())
				}
			})
		})
	}
}

// An answered renewal is no longer awaited, and nothing should be sent before the next renewal.
func TestAnsweredRenewalsAreNotAwaited(t *testing.T) {
	withBench(t, func(t *testing.T, b *bench) {
		b.begin("n", 100, time.Minute)
		time.Sleep(59 * time.Second)
		b.flights.mu.Lock()
		defer b.flights.mu.Unlock()
		if n := len(b.flights.list); n > 0 {
			t.Errorf("%d flights are awaited", n)
		}
		renewed := 0
		for _, names := range b.extended() {
			renewed += len(names)
		}
		if renewed != 200 {
			t.Errorf("%d renewals of 100 leases in a minute, want 200", renewed)
		}
	})
}

// When a lease in the sample is lost, all leases are renewed at once.
func TestLossInASample(t *testing.T) {
	withBench(t, func(t *testing.T, b *bench) {
		all := b.begin("n", 10*sampleSize, time.Minute)
		time.Sleep(10 * time.Second)
		b.answers(func([]driver.ExtendRequest) error { return driver.ErrLost })
		if begin := b.now.Now(); !b.Sample() || b.Sample() {
			t.Errorf("no sample at %v, or two", begin)
		}
		synctest.Wait()
		for _, h := range all {
			if h.LockState().Reason() != lease.Missing {
				t.Errorf("%s: the loss is not detected", h.state.Name)
			}
			h.UnlockState()
		}
		if b.Len() > 0 {
			t.Errorf("%d leases are left", b.Len())
		}
	})
}

// After a reconnect, a sample is renewed, plus the leases that were never renewed: only the last
// writes may be lost.
func TestReconnectRenewsNewLeases(t *testing.T) {
	withBench(t, func(t *testing.T, b *bench) {
		b.begin("old", 10*sampleSize, time.Minute)
		time.Sleep(25 * time.Second)
		b.extended()
		b.begin("new", sampleSize, time.Minute)
		b.Reconnected()
		synctest.Wait()
		before, since := 0, 0
		for _, names := range b.extended() {
			for _, name := range names {
				if strings.HasPrefix(name, "new") {
					since++
				} else {
					before++
				}
			}
		}
		if since != sampleSize || before > sampleSize {
			t.Errorf("%d new leases were renewed, and %d others; want all %d, and at most as many", since, before, sampleSize)
		}
	})
}

// If the store does not answer, a few of the flight's leases should be sent again as a probe: the
// store may only be slow. With a short TTL this happens soon.
func TestProbeIsSmall(t *testing.T) {
	withBench(t, func(t *testing.T, b *bench) {
		const leases, ttl = 100, 600 * ms
		end := make(chan struct{})
		defer close(end)
		b.answers(func([]driver.ExtendRequest) error {
			<-end
			return &driver.UnavailableError{Op: "extend", Cause: errors.New("no answer")}
		})
		b.begin("n", leases, ttl)
		time.Sleep(ttl/2 + 50*ms)
		sent := b.extended()
		if len(sent) != 2 || len(sent[0]) != leases || len(sent[1]) != probeSize {
			t.Errorf("%d requests, of %d leases; want one of all, and a probe of %d", len(sent), lengths(sent), probeSize)
		}
	})
}

func lengths(all [][]string) (n []int) {
	for _, one := range all {
		n = append(n, len(one))
	}
	return n
}
