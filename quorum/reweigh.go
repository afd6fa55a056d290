package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// Reweigh implements dibs.Store. Where a reader has become a writer, and most others
// refuse that, he becomes a reader again.
func (s *Store) Reweigh(ctx context.Context, q dibs.Claim) (dibs.Answer, error) {
	if err := firstErr(s.check(q), gone(ctx, "reweigh", q.Name)); err != nil {
		return dibs.Answer{}, err
	}
	if q.Until.IsZero() {
		q.Until = deadline(ctx)
	}
	// A node that has not heard of the last release yet refuses for a moment only.
	const tries, pause = 3, 3 * time.Millisecond
	fence := s.clock.tick()
	known, want := make([]uint64, len(s.nodes)), uint64(0) // fences
	for try := 1; ; try++ {
		r, err := s.reweigh(ctx, q, fence, known)
		switch {
		case err != nil:
			return dibs.Answer{}, err
		case !r.held && try == tries:
			return r.refusal, nil
		case !r.held:
			time.Sleep(pause)
		}
		if !r.held {
			continue
		}
		// Most nodes must know the fence.
		want = max(want, slices.Max(r.known))
		if r.know(want) >= s.need {
			return dibs.Answer{Held: true, Fence: want}, nil
		}
		fence, known = want, r.known
	}
}

// A change is what nodes say to Reweigh.
type change struct {
	held    bool
	refusal dibs.Answer
	known   []uint64 // the fence that each has
}

// know is how many nodes know a fence, or a larger one.
func (c change) know(fence uint64) (n int) {
	for _, known := range c.known {
		if known >= fence {
			n++
		}
	}
	return n
}

// reweigh asks the nodes, but for those that are known to have such a fence.
func (s *Store) reweigh(ctx context.Context, q dibs.Claim, fence uint64, known []uint64) (change, error) {
	q.Ballot = &dibs.Ballot{Fence: fence, Memory: s.memory}
	poll := s.poll()
	poll.strict = true
	answers := make([]dibs.Answer, len(s.nodes))
	var mu sync.Mutex
	decided := make(chan bool, 1)
	s.mu.Lock()
	lanes := s.at(q.Name, q.Token).lanes
	for i, n := range s.nodes {
		if known[i] >= fence {
			answers[i] = dibs.Answer{Held: true, Fence: known[i]}
			poll.say(i, true, nil)
			continue
		}
		send := func() error {
			a, err := n.reweigh(q)
			mu.Lock()
			answers[i] = a
			mu.Unlock()
			poll.say(i, a.Held, err)
			yes := <-decided
			decided <- yes
			if writes := q.Alone() && q.Limit == dibs.Unlimited; !yes && writes && (a.Held || err != nil) {
				back := q
				back.Weight, back.Until = 1, time.Now().Add(operation)
				_, _ = n.reweigh(back) // or its TTL ends it: most others did not let it write
			}
			return nil // whoever asked for it asks again, or not
		}
		s.put(lanes[i], operation, &errand{send: send}) // one that overtook the one before would be undone by it
	}
	s.mu.Unlock()
	yes, err := poll.result(ctx, "reweigh", q.Name, q.Until)
	decided <- yes
	mu.Lock()
	defer mu.Unlock()
	c := change{held: yes, known: make([]uint64, len(answers))}
	for i, a := range answers {
		s.clock.saw(a.Fence)
		if a.Held {
			c.known[i] = a.Fence
		} else if a.Name != "" && (c.refusal.Name == "" || c.refusal.Holder == "") {
			c.refusal = a
		}
	}
	return c, err
}

func (n *node) reweigh(q dibs.Claim) (dibs.Answer, error) {
	ctx, cancel := within(q.Until)
	defer cancel()
	return n.Reweigh(ctx, q)
}
