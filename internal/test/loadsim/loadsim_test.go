package loadsim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

const (
	second = time.Second
	ms     = time.Millisecond
)

// model is a plan for 20 clients that represents 5,000 leases each by fewer, on a proportionally
// slower server. With DIBS_LONG it is the original. A lost lease is not unlocked, so renewals are
// the only load.
func model(leases int, p Plan) Plan {
	if os.Getenv("DIBS_LONG") == "1" {
		leases = 5000
	}
	p.Leases, p.Costs, p.KeepLost = Equal(20, leases), DefaultCosts().Model(5000/leases), true
	return p
}

// measure runs a plan and logs events.
func measure(t *testing.T, p Plan) Report {
	t.Helper()
	r := Run(t, p)
	t.Log(r)
	return r
}

func wantNoLoss(t *testing.T, r Report) {
	t.Helper()
	if r.Acquired != r.Leases || len(r.Lost) > 0 {
		t.Errorf("%d of %d leases acquired, %d lost %v, want none lost", r.Acquired, r.Leases, r.LostInAll(), r.Lost)
	}
}

// wantCheapRecovery checks that after an event, the server does at most twice the work as in an
// equally long quiet period.
func wantCheapRecovery(t *testing.T, r Report, at, d time.Duration) {
	t.Helper()
	quiet, recovery := r.Between(at-d, at), r.Between(at, at+d)
	t.Logf("in %v: %d requests, %d renewals, %v of work; before: %d, %d, %v", d,
		recovery.Requests(), recovery.Renewed, recovery.Work, quiet.Requests(), quiet.Renewed, quiet.Work)
	if recovery.Renewed > 2*quiet.Renewed {
		t.Errorf("%d renewals in the recovery, want at most twice those of a quiet time, %d", recovery.Renewed, quiet.Renewed)
	}
	if recovery.Requests() > 2*quiet.Requests() {
		t.Errorf("%d requests in the recovery, want at most twice those of a quiet time, %d", recovery.Requests(), quiet.Requests())
	}
}

func TestStoppedServer(t *testing.T) {
	t.Parallel()
	p := model(250, Plan{TTL: 15 * second, Acquire: 5 * second, Events: []Event{Stop(30*second, 3*second)}})
	r := measure(t, p)
	wantNoLoss(t, r)
	wantCheapRecovery(t, r, 30*second, 15*second)
}

func TestStoppedServerWithWaiters(t *testing.T) {
	t.Parallel()
	p := model(250, Plan{TTL: 15 * second, Acquire: 5 * second, Waiters: 20, Events: []Event{Stop(30*second, 3*second)}})
	r := measure(t, p)
	wantNoLoss(t, r)
	wantCheapRecovery(t, r, 30*second, 15*second)
}

func TestCutLinks(t *testing.T) {
	t.Parallel()
	// The leases are acquired in 5 s and renewed every 10 s. So all renewals are due during a cut.
	p := model(250, Plan{Acquire: 5 * second, Duration: 80 * second, Events: []Event{Cut(39*second, 5*second)}})
	r := measure(t, p)
	wantNoLoss(t, r)
	wantCheapRecovery(t, r, 39*second, 30*second)
}

// The first renewals for leases acquired together are due together.
func TestLimitedServer(t *testing.T) {
	t.Parallel()
	p := model(250, Plan{TTL: 15 * second, Events: []Event{Throttle(3*second, 0.3)}})
	wantNoLoss(t, measure(t, p))
}

func TestLimitedServerStops(t *testing.T) {
	t.Parallel()
	p := model(250, Plan{TTL: 15 * second, Acquire: 5 * second, Events: []Event{Throttle(0, 0.3), Stop(30*second, 3*second)}})
	r := measure(t, p)
	wantNoLoss(t, r)
	wantCheapRecovery(t, r, 30*second, 15*second)
}

func TestVeryLimitedServerStops(t *testing.T) {
	t.Parallel()
	p := Plan{Leases: Equal(20, 250), TTL: 15 * second, Events: []Event{Throttle(0, 0.05), Stop(30*second, 3*second)}}
	r := measure(t, p)
	wantNoLoss(t, r)
	wantCheapRecovery(t, r, 30*second, 15*second)
}

// need is the average processor share needed by a plan's renewals.
func need(p Plan) float64 {
	return 3 * float64(p.leases()) * float64(p.Costs.renewal()) / float64(p.TTL)
}

func TestServerJustFastEnough(t *testing.T) {
	t.Parallel()
	p := model(500, Plan{TTL: 15 * second, Acquire: 5 * second, Duration: 60 * second})
	p.Events = []Event{Throttle(20*second, 1.2*need(p))}
	wantNoLoss(t, measure(t, p))
}

// Less processor time than the renewals usually need costs little or nothing while it is enough
// to renew each lease once in its TTL. With still less, a share of the best possible number is
// held: 1 is the server's maximum.
func TestServerTooSlow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ part, least float64 }{{1.5, 0.9}, {0.8, 0.15}} {
		t.Run(fmt.Sprint(c.part), func(t *testing.T) {
			wantMostOfTheBest(t, tooSlow(c.part), c.least)
		})
	}
}

// Nor do the requests for lost leases take the server away from the others.
func TestServerTooSlowForLostLeases(t *testing.T) {
	t.Parallel()
	p := tooSlow(1.1)
	p.KeepLost = false
	wantMostOfTheBest(t, p, 0.1)
}

const slowAt = 20 * second

// tooSlow is a plan with a server slowing down until only some leases can be held.
func tooSlow(part float64) Plan {
	p := model(500, Plan{TTL: 15 * second, Acquire: 5 * second, Duration: 80 * second})
	p.Events = []Event{Throttle(slowAt, part*need(p)/3/0.98)}
	return p
}

// wantMostOfTheBest checks that at the end, at least a share of the best possible number of leases
// is held.
func wantMostOfTheBest(t *testing.T, p Plan, part float64) {
	t.Helper()
	r := measure(t, p)
	best, have := Holdable(p, slowAt), r.Steps[len(r.Steps)-1].Held
	t.Logf("%d of %d leases are held, %d at best", have, r.Leases, best)
	if float64(have) < part*float64(best) {
		t.Errorf("%d of %d leases are held, want at least %v of %d, what is possible at best", have, r.Leases, part, best)
	}
}

func TestMoreOutages(t *testing.T) {
	t.Parallel()
	half := make([]int, 10)
	for i := range half {
		half[i] = 2 * i
	}
	for name, events := range map[string][]Event{
		"restart":          {Restart(30*second, second)},
		"three stops":      {Stop(30*second, 3*second), Stop(36*second, 3*second), Stop(42*second, 3*second)},
		"long stop":        {Stop(30*second, 8*second)},
		"half of links":    {Cut(30*second, 5*second, half...)},
		"while acquiring":  {Stop(2*second, 3*second)},
		"slow and stopped": {Throttle(10*second, 0.2), Stop(30*second, 3*second)},
		"slow for a while": {Throttle(30*second, 0.02), Throttle(36*second, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			wantNoLoss(t, measure(t, model(250, Plan{TTL: 15 * second, Acquire: 5 * second, Events: events})))
		})
	}
}

// A round trip longer than Timeout, but much shorter than the TTL, loses no lease. A process
// without processor time also sees such round trips.
func TestLongRoundTrips(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"0.6 s": 600 * ms, "1.5 s": second + second/2, "3 s": 3 * second} {
		t.Run(name, func(t *testing.T) {
			p := model(250, Plan{Acquire: 5 * second, Duration: 2 * time.Minute, Events: []Event{Delay(20*second, time.Minute, delay)}})
			r := measure(t, p)
			wantNoLoss(t, r)
		})
	}
}

func TestNarrowLinks(t *testing.T) {
	t.Parallel()
	p := Plan{
		Leases: Equal(20, 250), TTL: 15 * second, Acquire: 5 * second, Bandwidth: 20_000,
		Events: []Event{Cut(30*second, 3*second)},
	}
	wantNoLoss(t, measure(t, p))
}

// sizes are lease counts for clients with different sizes.
func sizes(most int) []int { return append(append(Equal(10, 1), Equal(10, 100)...), most) }

// wantDetected checks how long the clients with each size took to detect the loss of their leases.
func wantDetected(t *testing.T, p Plan, r Report) {
	t.Helper()
	bySize := make(map[int][]time.Duration)
	for _, loss := range r.Detected {
		for client, d := range loss {
			if d != 0 {
				n := p.Leases[client]
				bySize[n] = append(bySize[n], d)
			}
		}
	}
	for _, bar := range []struct {
		leases       int
		median, most time.Duration
	}{{1, 100 * ms, 500 * ms}, {100, 100 * ms, 500 * ms}, {slices.Max(p.Leases), 500 * ms, second}} {
		all := slices.Sorted(slices.Values(bySize[bar.leases]))
		if len(all) == 0 {
			t.Errorf("no client with %d leases detected the loss", bar.leases)
			continue
		}
		median, most := all[len(all)/2], all[len(all)-1]
		t.Logf("clients with %d leases: detected after %v in the median, at most %v", bar.leases, median, most)
		if median > bar.median || most > bar.most {
			t.Errorf("clients with %d leases: detected after %v in the median, at most %v, want %v, %v", bar.leases, median, most, bar.median, bar.most)
		}
	}
}

func TestDataLossIsDetected(t *testing.T) {
	t.Parallel()
	p := Plan{Leases: sizes(5000), Acquire: 2 * second, Duration: 30 * second, Events: []Event{LoseData(20*second, 50*ms)}}
	wantDetected(t, p, measure(t, p))
}

func TestRepeatedDataLossIsDetected(t *testing.T) {
	t.Parallel()
	most := 1000
	if os.Getenv("DIBS_LONG") == "1" {
		most = 5000
	}
	random := rand.New(rand.NewPCG(7, 7))
	p := Plan{Leases: sizes(most), Acquire: 2 * second, Again: true}
	at := 10 * second
	for range 24 {
		p.Events = append(p.Events, LoseData(at, 20*ms))
		at += second + rand64(random, second)
	}
	p.Duration = at + 5*second
	wantDetected(t, p, measure(t, p))
}

// Many clients should not overload a server after an outage, nor flood it with connections before.
func TestRestartWithManyClients(t *testing.T) {
	t.Parallel()
	clients := 300
	if os.Getenv("DIBS_LONG") == "1" {
		clients = 10_000
	}
	for name, e := range map[string]Event{"restart": Restart(20*second, 2*second), "stop": Stop(20*second, 3*second)} {
		t.Run(name, func(t *testing.T) {
			p := Plan{Leases: Equal(clients, 5), Waiters: 1, TTL: 9 * second, Acquire: 3 * second, Duration: 40 * second, Events: []Event{e}}
			r := measure(t, p)
			wantNoLoss(t, r)
			wantCheapRecovery(t, r, 20*second, 9*second)
			after := r.Between(20*second, 40*second)
			t.Logf("%d clients: at most %d requests at once, %d connections, %d refused", clients, after.Peak.Requests, after.Peak.Conns, after.Refused)
			if after.Peak.Requests > 8*clients || after.Peak.Conns > 8*clients || after.Refused > 20*clients {
				t.Errorf("%d clients: at most %d requests at once, %d connections, %d refused, want at most 8, 8, 20 for each client",
					clients, after.Peak.Requests, after.Peak.Conns, after.Refused)
			}
		})
	}
}
