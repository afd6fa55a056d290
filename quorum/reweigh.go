package quorum

import (
	"context"
	"errors"
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
	for i := range s.nodes {
		if known[i] >= fence {
			answers[i] = dibs.Answer{Held: true, Fence: known[i]}
			poll.say(i, yes, nil)
			continue
		}
		l := lanes[i]
		var swings bool
		begin := func() bool {
			swings = time.Now().Before(l.swing) && l.swung != q.Weight
			return true
		}
		send := func() error {
			var a dibs.Answer
			err := error(&dibs.UnavailableError{Op: "reweigh", Name: q.Name, Cause: errSwing})
			if !swings {
				a, err = s.reweighAt(l, q)
			}
			mu.Lock()
			answers[i] = a
			mu.Unlock()
			poll.say(i, says(a.Held), err)
			yes := <-decided
			decided <- yes
			if writes := q.Alone() && q.Limit == dibs.Unlimited; !yes && writes && (a.Held || err != nil) {
				back := q
				back.Weight, back.Until = 1, time.Now().Add(operation)
				_, _ = s.reweighAt(l, back) // or its TTL ends it: most others did not let it write
			}
			return nil // whoever asked for it asks again, or not
		}
		s.put(l, operation, &errand{begin: begin, send: send}) // one that overtook the one before would be undone by it
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

var errSwing = errors.New("an earlier change to another weight was not answered, and may still arrive")

// reweighAt changes how much a token holds at one node.
func (s *Store) reweighAt(l *lane, q dibs.Claim) (dibs.Answer, error) {
	ctx, cancel := within(q.Until)
	defer cancel()
	a, err := l.node.Reweigh(ctx, q)
	if mayPass(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if time.Now().Before(l.swing) && l.swung != q.Weight {
			l.swung = 0 // either may arrive
		} else {
			l.swung = q.Weight
		}
		l.swing = later(l.swing, q.Until.Add(slack))
	}
	return a, err
}
