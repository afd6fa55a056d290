package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// A runner carries out the state machine's decisions: it sends the messages, each in a goroutine,
// wakes the machine, and wakes the callers.
type runner struct {
	nodes  nodes
	notify func(client string, e driver.Event) // called without the mutex
	ctx    context.Context                     // ends when the store is closed
	cancel context.CancelFunc
	group  sync.WaitGroup // messages being sent

	mu      sync.Mutex
	machine *core.Machine
	timer   *time.Timer // wakes the machine at timerAt
	timerAt time.Time   // zero if the timer is not set
	closed  bool        // no message is sent any longer
}

var errClosed = errors.New("the quorum is closed")

func (r *runner) init(m *core.Machine, n nodes, notify func(client string, e driver.Event)) {
	r.machine, r.nodes, r.notify = m, n, notify
	r.ctx, r.cancel = context.WithCancel(context.Background())
}

// close waits for messages in flight, and cancels them after a moment.
func (r *runner) close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	limit := time.AfterFunc(core.StragglerTimeout, r.cancel)
	defer limit.Stop()
	r.group.Wait()
	r.cancel()
}

// step runs a machine step, and carries out its effects.
func (r *runner) step(do func(m *core.Machine, now time.Time) core.Effects) {
	r.mu.Lock()
	effects := do(r.machine, time.Now())
	if r.closed {
		effects.Send = nil
	}
	r.group.Add(len(effects.Send))
	r.setTimer()
	r.mu.Unlock()
	for _, msg := range effects.Send {
		go r.send(msg)
	}
	for _, call := range effects.Ended {
		close(call.Done)
	}
	for _, n := range effects.Notify {
		r.notify(n.Client, n.Event)
	}
}

// setTimer sets the timer to the machine's next due time. A timer set too early stays: it costs a
// step without effects, and less than a change for each call.
func (r *runner) setTimer() {
	at := r.machine.NextWake()
	if at.IsZero() || r.closed || !r.timerAt.IsZero() && !at.Before(r.timerAt) {
		return
	}
	if r.timer == nil {
		r.timer = time.AfterFunc(time.Until(at), r.wake)
	} else {
		r.timer.Reset(time.Until(at))
	}
	r.timerAt = at
}

func (r *runner) wake() {
	r.step(func(m *core.Machine, now time.Time) core.Effects {
		r.timerAt = time.Time{}
		return m.Wake(now)
	})
}

// do runs a call and waits for its end.
func (r *runner) do(ctx context.Context, op, name string, start func(m *core.Machine, c *core.Call, now time.Time) core.Effects) *core.Call {
	c := &core.Call{Context: ctx, Done: make(chan struct{})}
	r.step(func(m *core.Machine, now time.Time) core.Effects { return start(m, c, now) })
	select {
	case <-c.Done:
		return c
	case <-r.ctx.Done():
		return &core.Call{Err: &driver.UnavailableError{Op: op, Name: name, Cause: errClosed}}
	case <-ctx.Done():
	}
	r.step(func(m *core.Machine, now time.Time) core.Effects { return m.Leave(c, context.Cause(ctx), now) })
	<-c.Done
	return c
}

// observe ensures that later fences are larger than this fence.
func (r *runner) observe(fence uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machine.Observe(fence)
}

// send sends a message, and gives the machine the reply.
func (r *runner) send(msg *core.Message) {
	defer r.group.Done()
	reply := r.exchange(msg)
	r.step(func(m *core.Machine, now time.Time) core.Effects { return m.Answer(msg, reply, now) })
}

// exchange returns a node's reply to a message.
func (r *runner) exchange(msg *core.Message) (reply core.Reply) {
	ctx, cancel := nodeContext(r.ctx, msg.Until)
	defer cancel()
	if msg.Call != nil {
		ctx = valuesContext{ctx, context.WithoutCancel(msg.Call.Context)}
	}
	if msg.NeedsState() {
		state, err := r.nodes.inspect(ctx, msg.Acquire.Name)
		if err != nil || !msg.UseState(state) {
			return reply
		}
	}
	node := r.nodes.all[msg.Node]
	switch msg.Verb {
	case core.Acquire:
		reply.Acquire, reply.Err = node.Acquire(ctx, msg.Acquire)
	case core.Cancel:
		reply.Err = node.Cancel(ctx, msg.Acquire)
	case core.Resize:
		reply.Acquire, reply.Err = node.Resize(ctx, msg.Acquire)
	case core.Release:
		reply.OK, reply.Err = node.Release(ctx, msg.Release)
	case core.Extend:
		reply.Errs = node.Extend(ctx, msg.Extend)
	case core.Revoke:
		reply.OK, reply.Err = node.Revoke(ctx, msg.Revoke)
	}
	return reply
}

// nodeContext returns a context for a node's part in an operation until a time. It ends slightly
// earlier, so that the slow nodes' errors are known in time.
func nodeContext(parent context.Context, until time.Time) (context.Context, context.CancelFunc) {
	const least = 5 * time.Millisecond
	return context.WithDeadline(parent, until.Add(-min(time.Until(until)/20, least)))
}

// A valuesContext contains the caller's values, such as a trace. A message does not end with its
// caller, so the values must not include the cause of the caller's end.
type valuesContext struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (c valuesContext) Value(key any) any { return c.values.Value(key) }
