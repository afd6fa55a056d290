package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A batch holds the requests that a worker sends together, with their buffers.
type batch struct {
	requests  []*Request
	calls     []call
	parts     []call          // in a coalesced call
	coalesced redisconn.Cmd   // command of the coalesced call
	joined    []*wire.Request // the requests in the coalesced call
	cmds      []redisconn.Cmd
	replies   []redisconn.Reply

	// Guarded by the pipeline's mutex:
	sentAt    time.Time
	awaited   bool // further requests may wait for its replies
	callers   int  // that still wait
	abandoned bool // all callers have left
	lateAt    time.Time
	late      bool // the worker does not count any longer
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) reset() {
	clear(b.requests)
	clear(b.calls)
	clear(b.parts)
	clear(b.joined)
	clear(b.coalesced.Keys)
	clear(b.coalesced.Args)
	clear(b.cmds)
	clear(b.replies)
	b.requests, b.calls, b.cmds, b.replies = b.requests[:0], b.calls[:0], b.cmds[:0], b.replies[:0]
}

// A batchContext carries the values of a single caller, such as a trace, and does not end. The
// library makes a single call for the batch, which cannot belong to several traces or end with any
// caller.
type batchContext struct {
	values context.Context
	until  time.Time // when the last caller stops waiting
}

// newContext returns the context for a batch. It takes the values from the first caller that is not
// a renewal, because renewals have no trace.
func (b *batch) newContext() *batchContext {
	at := max(slices.IndexFunc(b.requests, func(r *Request) bool { return !r.Extends }), 0)
	c := &batchContext{values: b.requests[at].ctx}
	for _, r := range b.requests {
		if r.until.After(c.until) {
			c.until = r.until
		}
	}
	return c
}

// Deadline implements context.Context.
func (c *batchContext) Deadline() (time.Time, bool) { return c.until, true }

// Done implements context.Context.
func (c *batchContext) Done() <-chan struct{} { return nil }

// Err implements context.Context.
func (c *batchContext) Err() error { return nil }

// Value implements context.Context.
func (c *batchContext) Value(key any) any { return c.values.Value(key) }

// A call is a single script call. It serves one request, several requests on a name, or each
// request in parts.
type call struct {
	cmd   redisconn.Cmd
	first *Request
	more  []*Request
	parts []call
}

// scripts reports whether the server served the script calls.
func (b *batch) scripts() service {
	s := notAsked
	for i := range b.calls {
		switch err := b.replies[i].Err; {
		case b.calls[i].cmd.Script == nil:
		case err == nil:
			s = served
		case isTransient(err):
			return refused
		}
	}
	return s
}

func isTransient(err error) bool {
	var server redisconn.ServerError // costs an allocation
	return errors.As(err, &server) && server.Transient()
}

// makeCalls groups requests into calls. With coalesce, requests of the kinds in small are coalesced
// even if there is only a single request.
func (b *batch) makeCalls(coalesce bool, small wire.JoinSet) {
	for _, r := range b.requests {
		b.add(r)
	}
	if coalesce {
		b.coalesce(small)
	}
}

// add gives a request its own call, or merges it into an existing call on the same name.
func (b *batch) add(r *Request) {
	for i := range b.calls {
		c := &b.calls[i]
		if !c.first.CanMerge(&r.Request) {
			continue
		}
		if c.more == nil {
			c.cmd.Args = slices.Clone(c.cmd.Args)
		}
		c.more = append(c.more, r)
		wire.Merge(&c.cmd, &r.Request)
		return
	}
	b.calls = append(b.calls, call{first: r, cmd: r.Cmd})
}

// canCoalesce reports whether a call can be coalesced.
func (c *call) canCoalesce() bool { return len(c.more) == 0 && c.first.CanCoalesce() }

// isAwaited reports whether a caller still waits for the reply.
func (c *call) isAwaited() (awaited bool) {
	c.requests(func(r *Request) { awaited = awaited || !r.abandoned })
	return awaited
}

// requests calls visit for each request in a call.
func (c *call) requests(visit func(*Request)) {
	for i := range c.parts {
		c.parts[i].requests(visit)
	}
	if c.first != nil {
		visit(c.first)
	}
	for _, r := range c.more {
		visit(r)
	}
}

// coalesce replaces all calls that can be coalesced by a single call. A busy process usually
// acquires and releases uncontended locks from many goroutines, and then the server spends most of
// its time on the call overhead.
func (b *batch) coalesce(small wire.JoinSet) {
	b.parts = b.parts[:0]
	joins := func(c call) bool {
		return c.canCoalesce() && (c.first.Joins != wire.JoinsCancel || small[wire.JoinsCancel])
	}
	for _, acquires := range []bool{false, true} { // releases first: an acquire may be waiting for them
		for _, c := range b.calls {
			if joins(c) && acquires == (c.first.Joins == wire.JoinsAcquire) {
				b.parts = append(b.parts, c)
			}
		}
	}
	if len(b.parts) == 0 || len(b.parts) == 1 && !small[b.parts[0].first.Joins] {
		return
	}
	b.calls = slices.DeleteFunc(b.calls, joins)
	b.joined = b.joined[:0]
	for _, c := range b.parts {
		b.joined = append(b.joined, &c.first.Request)
	}
	wire.Coalesce(&b.coalesced, b.joined)
	b.calls = append(b.calls, call{cmd: b.coalesced, parts: b.parts})
}

// removeUnknown removes and returns the calls that can be coalesced and whose script the server did
// not know.
func (b *batch) removeUnknown() (unknown []call) {
	isUnknown := func(c *call, r redisconn.Reply) bool {
		return c.parts == nil && c.canCoalesce() && IsUnknownScript(r.Err)
	}
	n := 0
	for i := range b.calls {
		if isUnknown(&b.calls[i], b.replies[i]) {
			unknown = append(unknown, b.calls[i])
			continue
		}
		b.calls[n], b.cmds[n], b.replies[n] = b.calls[i], b.cmds[i], b.replies[i]
		n++
	}
	b.calls, b.cmds, b.replies = b.calls[:n], b.cmds[:n], b.replies[:n]
	return unknown
}

// cameTooLate reports whether a coalesced call did nothing because it included a void request. The
// other requests can be coalesced again.
func (c *call) cameTooLate(r redisconn.Reply) bool {
	if c.parts == nil {
		return false
	}
	now, ok := wire.ServerTime(r)
	return ok && wire.IsPast(c.cmd.Args[0], now)
}

// distribute gives each request its part of the reply. It returns the calls that must be sent
// alone.
func (c *call) distribute(r redisconn.Reply) (alone []call) {
	if c.parts != nil {
		return c.distributeCoalesced(r)
	}
	n := 1 + len(c.more)
	c.first.reply = wire.Split(r, 0, n)
	for i, m := range c.more {
		m.reply = wire.Split(r, i+1, n)
	}
	return nil
}

// distributeCoalesced gives each part of a coalesced call its answer. It returns the parts that
// must be sent alone: all parts if the server refused the call, since any part may be the reason.
func (c *call) distributeCoalesced(r redisconn.Reply) (alone []call) {
	var refusal redisconn.ServerError
	if errors.As(r.Err, &refusal) {
		return c.parts
	}
	var answers wire.CoalescedReply
	if r.Err == nil {
		answers, r.Err = wire.ParseCoalesced(r.Value, len(c.parts))
	}
	for i, part := range c.parts {
		if r.Err != nil {
			part.first.reply = redisconn.Reply{Err: r.Err}
			continue
		}
		var served bool
		if part.first.reply, served = answers.Of(i, &part.first.Request); !served {
			alone = append(alone, part)
		}
	}
	return alone
}
