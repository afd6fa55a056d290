package load

import (
	"context"
	"sync"
	"time"
)

// A Gate admits requests as a Budget permits. Requests of the same kind pass in order of arrival,
// and the kinds take turns. It is safe for concurrent use.
type Gate struct {
	now  func() time.Duration
	free func() // called, without a lock, when there may be room again

	mu      sync.Mutex
	budget  *Budget
	waiting [kinds][]*visitor
	turn    Kind        // whose turn is next
	timer   *time.Timer // wakes visitors for a probe
}

// A visitor is a caller waiting for room.
type visitor struct {
	pass chan struct{} // has an element when sent is set
	sent Sent
}

// patienceOf returns how long a request waits after a failure. Calls have their own, shorter
// pauses.
func patienceOf(k Kind) time.Duration {
	if k == Cleanup {
		return longestPause
	}
	return 0
}

// NewGate returns a gate. It reads the time from now, and calls free when there may be room for
// renewals again.
func NewGate(now func() time.Duration, free func()) *Gate {
	return &Gate{now: now, free: free, budget: NewBudget()}
}

// Try sends a request with at most this many units if there is room, and returns its size; zero
// means that there was no room.
func (g *Gate) Try(k Kind, most int, patience time.Duration) (s Sent, units int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	units = g.budget.Batch(now, k, most, patience)
	if units <= 0 {
		return Sent{}, 0
	}
	return g.budget.Send(now, k, units), units
}

// Wait waits until there is room for a request with a single unit, or until ctx ends.
func (g *Gate) Wait(ctx context.Context, k Kind) (Sent, error) {
	g.mu.Lock()
	now := g.now()
	if len(g.waiting[k]) == 0 && g.budget.Room(now, k, patienceOf(k)) > 0 {
		defer g.mu.Unlock()
		return g.budget.Send(now, k, 1), nil
	}
	v := &visitor{pass: make(chan struct{}, 1)}
	g.waiting[k] = append(g.waiting[k], v)
	g.setTimer(now)
	g.mu.Unlock()
	select {
	case <-v.pass:
		return v.sent, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting[k] {
		if w == v {
			g.waiting[k] = append(g.waiting[k][:i], g.waiting[k][i+1:]...)
			return Sent{}, context.Cause(ctx)
		}
	}
	return v.sent, nil // it passed at the same moment
}

// End records a request's outcome.
func (g *Gate) End(s *Sent, what Outcome) {
	g.mu.Lock()
	now := g.now()
	g.budget.End(now, s, what)
	g.admit(now)
	g.mu.Unlock()
	g.free()
}

// Restart makes the budget small: see Budget.Restart.
func (g *Gate) Restart() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.budget.Restart(g.now())
}

// Next returns when there will be room for a unit if no answer comes before.
func (g *Gate) Next(k Kind, patience time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.budget.Next(g.now(), k, patience)
}

// Heard describes the answers received.
func (g *Gate) Heard() Heard {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.budget.heard
}

// Needs returns how long a slow renewal takes now if the store was slow, or zero.
func (g *Gate) Needs() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.budget.IsReduced() {
		return 0
	}
	return g.budget.Slow()
}

// admit lets visitors pass while there is room.
func (g *Gate) admit(now time.Duration) {
	for missed := Kind(0); missed < kinds; {
		k := g.turn
		g.turn = (g.turn + 1) % kinds
		if len(g.waiting[k]) == 0 || g.budget.Room(now, k, patienceOf(k)) == 0 {
			missed++
			continue
		}
		missed = 0
		v := g.waiting[k][0]
		g.waiting[k] = g.waiting[k][1:]
		v.sent = g.budget.Send(now, k, 1)
		v.pass <- struct{}{}
	}
	g.setTimer(now)
}

// setTimer wakes the visitors when there is room although no answer came.
func (g *Gate) setTimer(now time.Duration) {
	in := time.Duration(-1)
	for k := range kinds {
		if len(g.waiting[k]) == 0 {
			continue
		}
		if d := max(g.budget.Next(now, k, patienceOf(k))-now, time.Millisecond); in < 0 || d < in {
			in = d
		}
	}
	switch {
	case in < 0:
	case g.timer == nil:
		g.timer = time.AfterFunc(in, g.probe)
	default:
		g.timer.Reset(in)
	}
}

func (g *Gate) probe() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit(g.now())
}
