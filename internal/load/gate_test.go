package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newTestGate() *Gate {
	begin := time.Now()
	return NewGate(func() time.Duration { return time.Since(begin) }, func() {})
}

// narrow reduces the limit of a gate to its lowest.
func narrow(g *Gate) {
	for range 20 {
		time.Sleep(time.Second)
		s, _ := g.Try(Renewal, 1, 0)
		time.Sleep(time.Second)
		g.End(&s, Unanswered)
	}
}

// Visitors pass one after the other as answers come, those of all kinds in turn.
func TestGateIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate()
		narrow(g)
		var held []Sent
		for range lowestShare {
			s, err := g.Wait(t.Context(), Waiter)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, s)
		}
		var mu sync.Mutex
		var passed []Kind
		var group sync.WaitGroup
		for range 5 {
			for _, k := range []Kind{Waiter, Retry, Cleanup} {
				group.Go(func() {
					s, err := g.Wait(t.Context(), k)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					passed = append(passed, k)
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					g.End(&s, Answered)
				})
			}
		}
		synctest.Wait()
		for i := range held {
			g.End(&held[i], Answered)
			synctest.Wait()
		}
		group.Wait()
		count := make(map[Kind]int)
		for _, k := range passed[:6] {
			count[k]++
		}
		for k, n := range count {
			if n > 4 {
				t.Errorf("%d of the first 6 are of kind %d", n, k)
			}
		}
	})
}

// A visitor passes now and then although nothing is answered.
func TestGateProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate()
		narrow(g)
		for range lowestShare {
			if _, err := g.Wait(t.Context(), Retry); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		if _, err := g.Wait(t.Context(), Retry); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > time.Second || took == 0 {
			t.Errorf("it passed after %v", took)
		}
	})
}

// A visitor that gives up does not take room.
func TestGateVisitorLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate()
		narrow(g)
		var held []Sent
		for range lowestShare {
			s, _ := g.Wait(t.Context(), Cleanup)
			held = append(held, s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := g.Wait(ctx, Cleanup); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		for i := range held {
			g.End(&held[i], Answered)
		}
		if g.budget.sent[Cleanup] != 0 || len(g.waiting[Cleanup]) != 0 {
			t.Errorf("%d units on their way, %d visitors", g.budget.sent[Cleanup], len(g.waiting[Cleanup]))
		}
	})
}
