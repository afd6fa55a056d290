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

// narrow reduces a gate's limit to its minimum.
func narrow(g *Gate) {
	for range 20 {
		time.Sleep(time.Second)
		s, _ := g.Try(Renewal, 1, 0)
		time.Sleep(time.Second)
		g.End(&s, Unanswered)
	}
}

// A kind whose share is used up delays no other kind. Its visitors pass as answers come.
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
		passed := make(map[Kind]int)
		var group sync.WaitGroup
		const each = 5
		for range each {
			for _, k := range []Kind{Waiter, Retry, Cleanup} {
				group.Go(func() {
					s, err := g.Wait(t.Context(), k)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					passed[k]++
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					g.End(&s, Answered)
				})
			}
		}
		want := func(waiters int) {
			mu.Lock()
			defer mu.Unlock()
			if passed[Waiter] != waiters || passed[Retry] != each || passed[Cleanup] != each {
				t.Errorf("of each kind %v have passed, want %d waiters and %d of the others", passed, waiters, each)
			}
		}
		synctest.Wait()
		want(0)
		for i := range held {
			g.End(&held[i], Answered)
			synctest.Wait()
			want(min(i+1, each))
		}
		group.Wait()
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

// A visitor that gives up must not take room.
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
