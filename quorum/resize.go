package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Reweigh implements dibs.Store. Where a reader has become a writer, and most others
// refuse that, he becomes a reader again.
func (s *Store) Resize(ctx context.Context, q driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := firstErr(s.check(q), gone(ctx, "reweigh", q.Name)); err != nil {
		return driver.AcquireReply{}, err
	}
	if q.Until.IsZero() {
		q.Until = deadline(ctx)
	}
	// A node that has not heard of the last release yet refuses for a moment only.
	const tries, pause = 3, 3 * time.Millisecond
	fence := s.clock.tick()
	known, want := make([]uint64, len(s.nodes)), uint64(0) // fences
	for try := 1; ; try++ {
		r, err := s.resize(ctx, q, fence, known)
		switch {
		case err != nil:
			return driver.AcquireReply{}, err
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
			return driver.AcquireReply{Held: true, Fence: want}, nil
		}
		fence, known = want, r.known
	}
}

// A change is what nodes say to Reweigh.
type resizeResult struct {
	held    bool
	refusal driver.AcquireReply
	known   []uint64 // the fence that each has
}

// know is how many nodes know a fence, or a larger one.
func (c resizeResult) know(fence uint64) (n int) {
	for _, known := range c.known {
		if known >= fence {
			n++
		}
	}
	return n
}

// reweigh asks the nodes, but for those that are known to have such a fence.
func (s *Store) resize(ctx context.Context, q driver.AcquireRequest, fence uint64, known []uint64) (resizeResult, error) {
	q.Vote = &driver.VoteRequest{Fence: fence, RecoveryWindow: s.memory}
	poll := s.poll()
	poll.strict = true
	answers := make([]driver.AcquireReply, len(s.nodes)) // guarded by s.mu
	s.mu.Lock()
	for i, l := range s.at(q.Name, q.Token).lanes {
		if known[i] >= fence {
			answers[i] = driver.AcquireReply{Held: true, Fence: known[i]}
			poll.record(i, yes, nil)
			continue
		}
		s.resizeOn(l, q, func(a driver.AcquireReply, err error) (tell func()) {
			answers[i] = a
			return func() { poll.record(i, toAnswer(a.Held), err) }
		})
	}
	s.mu.Unlock()
	held, err := poll.result(ctx, "reweigh", q.Name, q.Until)
	s.mu.Lock()
	defer s.mu.Unlock()
	if writes := q.Exclusive() && q.Limit == driver.Unlimited; writes && !held {
		s.readAgain(answers, q)
	}
	c := resizeResult{held: held, known: make([]uint64, len(answers))}
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

// readAgain has a reader that most nodes did not let write be a reader again at the others.
// Where that is not answered, the node keeps other readers out: most others did not let it
// write. The caller holds s.mu.
func (s *Store) readAgain(answers []driver.AcquireReply, q driver.AcquireRequest) {
	q.Weight, q.Until = 1, time.Time{}
	for i, l := range s.at(q.Name, q.Token).lanes {
		if refused := answers[i].Name != ""; !refused {
			s.resizeOn(l, q, func(driver.AcquireReply, error) func() { return func() {} })
		}
	}
}

var errSwing = errors.New("an earlier change to another weight was not answered, and may still arrive")

// weigh changes how much a token holds at one node, once what is under way there is
// answered: a change that overtook the one before would be undone by it. heard takes the
// answer with the mutex, and returns what to do without. Nothing is repeated: whoever
// asked for it asks again, or not. The caller holds s.mu.
func (s *Store) resizeOn(l *nodeQueue, q driver.AcquireRequest, heard func(driver.AcquireReply, error) (tell func())) {
	var a driver.AcquireReply
	var err error
	begin := func() bool {
		if q.Until.IsZero() {
			q.Until = time.Now().Add(operation)
		}
		l.share = unclear
		if time.Now().Before(l.swing) && l.swung != q.Weight {
			err = &driver.UnavailableError{Op: "reweigh", Name: q.Name, Cause: errSwing}
		}
		return true
	}
	send := func() error {
		if err != nil {
			return nil
		}
		ctx, cancel := within(q.Until)
		defer cancel()
		if a, err = l.node.Resize(ctx, q); mayPass(err) {
			s.mu.Lock()
			defer s.mu.Unlock()
			l.recordResize(q)
		}
		return nil
	}
	end := func(error) (tell func()) { return heard(a, err) }
	s.enqueue(l, operation, &delivery{begin: begin, send: send, end: end})
}

// swings notes that a change of weight was not answered. The caller holds s.mu.
func (l *nodeQueue) recordResize(q driver.AcquireRequest) {
	if time.Now().Before(l.swing) && l.swung != q.Weight {
		l.swung = 0 // either may arrive
	} else {
		l.swung = q.Weight
	}
	l.swing = later(l.swing, q.Until.Add(slack))
}
