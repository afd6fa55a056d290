package drill

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// Replicas checks WithReplicas: it must wait for n replicas and not for all. A lock and unlock
// must take the given number of round trips, and a try on a held name must not wait.
func (o Opener) Replicas(t *testing.T, trips float64) {
	const timeout = 3 * time.Second // with replicas
	r := redistest.StartReplicated(t, 2)
	machine := WatchMachine(t.Context(), r.Master.Addr())
	open := func(addr string, n int) *dibs.Client {
		c := dibs.New(o.Single(t, addr, redisstore.WithReplicas(n, timeout)), dibs.Timeout(10*time.Second))
		t.Cleanup(func() { c.Close() })
		return c
	}
	plain := dibs.New(o.Single(t, r.Master.Addr()))
	defer plain.Close()
	one, two := open(r.Master.Addr(), 1), open(r.Master.Addr(), 2)
	held, err := plain.Mutex("taken").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()

	waitForReplicas(t, two)
	_, all := measurePairs(t, one, 21)
	measurePairs(t, two, 21)
	wantTrips(t, r.Master.Addr(), open, trips)

	pause(t, r.Replicas[0])
	quickest, stalled := measurePairs(t, one, 21)
	wantTooFewReplicas(t, two, 1, 2)
	wantFastTries(t, machine, two)
	pause(t, r.Replicas[1])
	wantTooFewReplicas(t, one, 0, 1)
	wantFastTries(t, machine, one)
	for _, replica := range r.Replicas {
		if err := replica.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	waitForReplicas(t, two) // the stalled replicas must catch up
	t.Logf("FIGURE lock and unlock with one of two replicas: %v, %v while the other is stalled, %v at best", all, stalled, quickest)
	if quickest > timeout/2 { // a wait for a stalled replica lasts this long
		t.Error("it waited for the stalled replica")
	}
}

// waitForReplicas waits until all replicas acknowledge writes. A replica sends nothing in
// its first second.
func waitForReplicas(t *testing.T, c *dibs.Client) {
	t.Helper()
	for end := time.Now().Add(Generous); ; {
		lease, err := c.Mutex("free").TryLock(t.Context())
		if err == nil {
			lease.Unlock()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func pause(t *testing.T, s *redistest.Server) {
	t.Helper()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
}

// measurePairs returns the shortest and the median time for a lock and unlock.
func measurePairs(t *testing.T, c *dibs.Client, many int) (shortest, median time.Duration) {
	t.Helper()
	var took []time.Duration
	for range many {
		begin := time.Now()
		lease, err := c.Mutex("free").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[0], took[len(took)/2]
}

// wantTrips counts round trips by their delay. It uses the shortest of several pairs, which a busy
// machine has disturbed least. The machine's delay matters less with a longer round trip.
func wantTrips(t *testing.T, master string, open func(addr string, n int) *dibs.Client, want float64) {
	t.Helper()
	proxy := redistest.NewProxy(t, master)
	c := open(proxy.Addr(), 1)
	measurePairs(t, c, 21) // connects
	const tries = 4
	for try, roundTrip, many := 1, 40*time.Millisecond, 21; ; try, roundTrip, many = try+1, 160*time.Millisecond, 5 {
		proxy.Delay(roundTrip / 2)
		shortest, _ := measurePairs(t, c, many)
		got := float64(shortest) / float64(roundTrip)
		t.Logf("FIGURE lock and unlock with a replica: %.2f round trips of %v", got, roundTrip)
		if got <= want+0.3 {
			return
		}
		if try == tries {
			t.Fatalf("%.2f round trips, want %.0f", got, want)
		}
	}
}

// wantTooFewReplicas checks that a lock fails while too few replicas answer, with a clear error,
// and nothing is left behind.
func wantTooFewReplicas(t *testing.T, c *dibs.Client, got, want int) {
	t.Helper()
	_, err := c.Mutex("free").TryLock(t.Context())
	var replicas *redisstore.ReplicasError
	if !errors.Is(err, dibs.ErrUnavailable) || !errors.As(err, &replicas) || replicas.Have != got || replicas.Want != want {
		t.Fatalf("%v, want ReplicasError with %d of %d replicas", err, got, want)
	}
	state, err := c.Inspect(t.Context(), "free")
	if err != nil || state.Holding > 0 || state.Waiting > 0 {
		t.Errorf("left behind: %+v, %v", state, err)
	}
}

// wantFastTries checks that a try on a held name does not wait for replicas.
func wantFastTries(t *testing.T, machine *Machine, c *dibs.Client) {
	t.Helper()
	for range 10 {
		machine.Measure(t, "a failed try", 200*time.Millisecond, func() time.Duration {
			begin := time.Now()
			if _, err := c.Mutex("taken").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Fatalf("%v, want ErrBusy", err)
			}
			return time.Since(begin)
		})
	}
}
