package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// A runner carries out what the state machine decides: it sends the messages, each in a
// goroutine, wakes the machine, and wakes the callers.
type runner struct {
	ctx    context.Context // ends when the store is closed
	cancel context.CancelFunc
	group  sync.WaitGroup // messages being sent

	mu      sync.Mutex
	machine *core.Machine
	timer   *time.Timer // wakes the machine at timerAt
	timerAt time.Time   // zero if the timer is not set
	closed  bool        // no message is sent any longer
}

var errClosed = errors.New("the quorum is closed")

func (s *Store) init() {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.machine = core.New(s.config)
}

// Close ends the redelivery to nodes that are not reachable, and all calls. It waits for
// messages that are being sent, for 50 ms at most; then it cancels them. What a node has
// not received by then ends by its TTL. Close does not close the nodes. Close the Clients
// of the store first: they release their leases. After Close, all operations fail with
// driver.ErrUnavailable. A second Close does nothing. The error is always nil.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	limit := time.AfterFunc(core.StragglerTimeout, s.cancel)
	defer limit.Stop()
	s.group.Wait()
	s.cancel()
	return nil
}

// step runs one step of the machine, and carries out its effects.
func (s *Store) step(do func(m *core.Machine, now time.Time) core.Effects) {
	s.mu.Lock()
	effects := do(s.machine, time.Now())
	if s.closed {
		effects.Send = nil
	}
	s.group.Add(len(effects.Send))
	s.setTimer()
	s.mu.Unlock()
	for _, msg := range effects.Send {
		go s.send(msg)
	}
	for _, call := range effects.Ended {
		close(call.Done)
	}
	for _, n := range effects.Notify {
		s.watchers.notify(n.Client, n.Event)
	}
}

// setTimer sets the timer to the next time at which the machine has something to do. A timer
// that is set too early stays: it costs one step without effects, and less than a change for
// each call.
func (s *Store) setTimer() {
	at := s.machine.NextWake()
	if at.IsZero() || s.closed || !s.timerAt.IsZero() && !at.Before(s.timerAt) {
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(at), s.wake)
	} else {
		s.timer.Reset(time.Until(at))
	}
	s.timerAt = at
}

func (s *Store) wake() {
	s.step(func(m *core.Machine, now time.Time) core.Effects {
		s.timerAt = time.Time{}
		return m.Wake(now)
	})
}

// do runs a call and waits for its end.
func (s *Store) do(ctx context.Context, op, name string, start func(m *core.Machine, c *core.Call, now time.Time) core.Effects) *core.Call {
	c := &core.Call{Context: ctx, Done: make(chan struct{})}
	s.step(func(m *core.Machine, now time.Time) core.Effects { return start(m, c, now) })
	select {
	case <-c.Done:
		return c
	case <-s.ctx.Done():
		return &core.Call{Err: &driver.UnavailableError{Op: op, Name: name, Cause: errClosed}}
	case <-ctx.Done():
	}
	s.step(func(m *core.Machine, now time.Time) core.Effects { return m.Abandon(c, context.Cause(ctx), now) })
	<-c.Done
	return c
}

// observe makes sure that later fences are larger than this one.
func (s *Store) observe(fence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine.Observe(fence)
}

// send sends one message, and gives the machine the reply.
func (s *Store) send(msg *core.Message) {
	defer s.group.Done()
	reply := s.exchange(msg)
	s.step(func(m *core.Machine, now time.Time) core.Effects { return m.Answer(msg, reply, now) })
}

// exchange returns a node's reply to a message.
func (s *Store) exchange(msg *core.Message) (r core.Reply) {
	ctx, cancel := nodeContext(s.ctx, msg.Until)
	defer cancel()
	if msg.Call != nil {
		ctx = valuesContext{ctx, msg.Call.Context}
	}
	if msg.NeedsState() {
		state, err := s.Inspect(ctx, msg.Acquire.Name)
		if err != nil || !msg.UseState(state) {
			return r
		}
	}
	node := s.nodes[msg.Node]
	switch msg.Verb {
	case core.AcquireVote:
		r.Vote, r.Err = node.AcquireVote(ctx, msg.Acquire, msg.Vote)
	case core.CancelVote:
		r.Err = node.CancelVote(ctx, msg.Acquire, msg.Vote)
	case core.ResizeVote:
		r.Vote.AcquireReply, r.Err = node.ResizeVote(ctx, msg.Acquire, msg.Vote)
	case core.ReleaseVote:
		r.OK, r.Err = node.ReleaseVote(ctx, msg.Release, msg.Vote)
	case core.ExtendLeases:
		r.Errs = node.Extend(ctx, msg.Extend)
	case core.RevokeLease:
		r.OK, r.Err = node.Revoke(ctx, msg.Revoke.Name, msg.Revoke.Fence, msg.Revoke.Reason)
	}
	return r
}

// nodeContext returns a context for one node's part of an operation that ends at until.
// It ends slightly earlier, so that the errors of slow nodes are known by then.
func nodeContext(parent context.Context, until time.Time) (context.Context, context.CancelFunc) {
	const least = 5 * time.Millisecond
	return context.WithDeadline(parent, until.Add(-min(time.Until(until)/20, least)))
}

// A valuesContext has the values of the caller, such as a trace. A message does not end with
// its caller.
type valuesContext struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c valuesContext) Value(key any) any { return c.values.Value(key) }
