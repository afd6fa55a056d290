package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Resize implements driver.Store. If a majority refuses to upgrade a reader to a writer,
// the nodes that have upgraded it downgrade it again.
func (s *Store) Resize(ctx context.Context, q driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := firstErr(s.checkRequest(q), contextEnded(ctx, "resize", q.Name)); err != nil {
		return driver.AcquireReply{}, err
	}
	if q.Until.IsZero() {
		q.Until = deadlineOf(ctx)
	}
	// A node that has not yet received the last release refuses only for a moment.
	const tries, pause = 3, 3 * time.Millisecond
	fence := s.clock.next()
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
		// A majority must store the fence.
		want = max(want, slices.Max(r.known))
		if r.countStored(want) >= s.majority {
			return driver.AcquireReply{Held: true, Fence: want}, nil
		}
		fence, known = want, r.known
	}
}

// A resizeResult is the nodes' answer to one Resize.
type resizeResult struct {
	held    bool
	refusal driver.AcquireReply
	known   []uint64 // by node: its fence for the lease
}

// countStored returns how many nodes have this fence or a larger one.
func (c resizeResult) countStored(fence uint64) (n int) {
	for _, known := range c.known {
		if known >= fence {
			n++
		}
	}
	return n
}

// resize sends the request to all nodes except those that already have the fence.
func (s *Store) resize(ctx context.Context, q driver.AcquireRequest, fence uint64, known []uint64) (resizeResult, error) {
	vote := driver.Vote{Fence: fence, RecoveryWindow: s.recoveryWindow}
	poll := s.newPoll()
	poll.needMajority = true
	answers := make([]driver.AcquireReply, len(s.nodes)) // guarded by s.mu
	s.mu.Lock()
	for i, nq := range s.acquisitionFor(q.Name, q.Token).queues {
		if known[i] >= fence {
			answers[i] = driver.AcquireReply{Held: true, Fence: known[i]}
			poll.record(i, yes, nil)
			continue
		}
		s.resizeOn(nq, q, vote, func(a driver.AcquireReply, err error) (notify func()) {
			answers[i] = a
			return func() { poll.record(i, toAnswer(a.Held), err) }
		})
	}
	s.mu.Unlock()
	held, err := poll.result(ctx, "resize", q.Name, q.Until)
	s.mu.Lock()
	defer s.mu.Unlock()
	if upgrades := q.Exclusive() && q.Limit == driver.Unlimited; upgrades && !held {
		s.revertToReader(answers, q, vote)
	}
	result := resizeResult{held: held, known: make([]uint64, len(answers))}
	for i, a := range answers {
		s.clock.observe(a.Fence)
		if a.Held {
			result.known[i] = a.Fence
		} else if a.Name != "" && (result.refusal.Name == "" || result.refusal.Holder == "") {
			result.refusal = a
		}
	}
	return result, err
}

// revertToReader makes a token a reader again on all nodes that did not refuse the
// upgrade to a writer. A node that does not answer keeps other readers out, but a
// majority refused the upgrade and does not. The caller holds s.mu.
func (s *Store) revertToReader(answers []driver.AcquireReply, q driver.AcquireRequest, vote driver.Vote) {
	q.Weight, q.Until = 1, time.Time{}
	for i, nq := range s.acquisitionFor(q.Name, q.Token).queues {
		if refused := answers[i].Name != ""; !refused {
			s.resizeOn(nq, q, vote, func(driver.AcquireReply, error) func() { return func() {} })
		}
	}
}

var errResizePending = errors.New("an earlier resize to another weight got no answer and may still arrive")

// resizeOn changes the weight of a token at one node, after the pending deliveries there:
// an overtaken change would undo it. onReply is called with s.mu held; the function it
// returns is called without it. A failed resize is not repeated: the caller decides. The
// caller holds s.mu.
func (s *Store) resizeOn(nq *nodeQueue, q driver.AcquireRequest, vote driver.Vote, onReply func(driver.AcquireReply, error) (notify func())) {
	var a driver.AcquireReply
	var err error
	begin := func() bool {
		if q.Until.IsZero() {
			q.Until = time.Now().Add(operationTimeout)
		}
		nq.mode = unknownMode
		if time.Now().Before(nq.resizeUntil) && nq.resizeWeight != q.Weight {
			err = &driver.UnavailableError{Op: "resize", Name: q.Name, Cause: errResizePending}
		}
		return true
	}
	send := func() error {
		if err != nil {
			return nil
		}
		ctx, cancel := nodeContext(q.Until)
		defer cancel()
		if a, err = nq.node.ResizeVote(ctx, q, vote); unanswered(err) {
			s.mu.Lock()
			defer s.mu.Unlock()
			nq.recordResize(q)
		}
		return nil
	}
	end := func(error) (notify func()) { return onReply(a, err) }
	s.enqueue(nq, operationTimeout, &delivery{begin: begin, send: send, end: end})
}

// recordResize records that a resize got no answer. The caller holds s.mu.
func (nq *nodeQueue) recordResize(q driver.AcquireRequest) {
	if time.Now().Before(nq.resizeUntil) && nq.resizeWeight != q.Weight {
		nq.resizeWeight = 0 // either of the two weights may arrive
	} else {
		nq.resizeWeight = q.Weight
	}
	nq.resizeUntil = later(nq.resizeUntil, q.Until.Add(slack))
}
