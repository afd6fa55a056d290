package drill

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// Replicas checks what WithReplicas waits for, and for whom: for n replicas and not for
// all, in as many round trips as the adapter says that lock and unlock take, and not at
// all where a name is taken.
func (o Opener) Replicas(t *testing.T, trips float64) {
	const patience = 800 * time.Millisecond // with replicas
	r := redistest.StartReplicated(t, 2)
	machine := WatchMachine(t.Context(), r.Master.Addr())
	open := func(addr string, n int) *dibs.Client {
		c := dibs.New(o.Single(t, addr, redisstore.WithReplicas(n, patience)), dibs.Timeout(10*time.Second))
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

	acquainted(t, two)
	_, all := pairs(t, one, 21)
	pairs(t, two, 21)
	wantTrips(t, r.Master.Addr(), open, trips)

	pause(t, r.Replicas[0])
	quickest, stalled := pairs(t, one, 21)
	short(t, two, 1, 2)
	tries(t, machine, two)
	pause(t, r.Replicas[1])
	short(t, one, 0, 1)
	tries(t, machine, one)
	for _, replica := range r.Replicas {
		if err := replica.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	acquainted(t, two) // what was stalled has to catch up
	t.Logf("FIGURE lock and unlock with one of two replicas: %v, %v while the other is stalled, %v at best", all, stalled, quickest)
	if quickest > patience/2 { // who waits does so for all of it
		t.Error("the stalled one was waited for")
	}
}

// acquainted waits until all replicas answer: Redis asks a replica that has just come for
// nothing in its first second.
func acquainted(t *testing.T, c *dibs.Client) {
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

// pairs returns the shortest and the median time to lock and unlock.
func pairs(t *testing.T, c *dibs.Client, many int) (shortest, median time.Duration) {
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

// wantTrips counts round trips by their delay: those of the shortest, which a busy
// machine has disturbed least. What the machine adds counts for less of a longer trip.
func wantTrips(t *testing.T, master string, open func(addr string, n int) *dibs.Client, want float64) {
	t.Helper()
	proxy := redistest.NewProxy(t, master)
	c := open(proxy.Addr(), 1)
	pairs(t, c, 21) // connects
	const tries = 4
	for try, trip, many := 1, 40*time.Millisecond, 21; ; try, trip, many = try+1, 160*time.Millisecond, 5 {
		proxy.Delay(trip / 2)
		shortest, _ := pairs(t, c, many)
		have := float64(shortest) / float64(trip)
		t.Logf("FIGURE lock and unlock with a replica: %.2f round trips of %v", have, trip)
		if have <= want+0.3 {
			return
		}
		if try == tries {
			t.Fatalf("%.2f round trips, want %.0f", have, want)
		}
	}
}

// short checks that a name cannot be had while too few replicas answer, that the error
// says so, and that nothing is left of it.
func short(t *testing.T, c *dibs.Client, have, want int) {
	t.Helper()
	_, err := c.Mutex("free").TryLock(t.Context())
	var replicas *redisstore.ReplicasError
	if !errors.Is(err, dibs.ErrUnavailable) || !errors.As(err, &replicas) || replicas.Have != have || replicas.Want != want {
		t.Fatalf("%v, want to be told that %d of %d replicas have it", err, have, want)
	}
	state, err := c.Inspect(t.Context(), "free")
	if err != nil || state.Holding > 0 || state.Waiting > 0 {
		t.Errorf("%+v is left, %v", state, err)
	}
}

// tries checks that who finds a name taken does not wait for replicas.
func tries(t *testing.T, machine *Machine, c *dibs.Client) {
	t.Helper()
	for range 10 {
		machine.Measure(t, "a failed try", 200*time.Millisecond, func() time.Duration {
			begin := time.Now()
			if _, err := c.Mutex("taken").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Fatalf("%v, want to be told that it is taken", err)
			}
			return time.Since(begin)
		})
	}
}
