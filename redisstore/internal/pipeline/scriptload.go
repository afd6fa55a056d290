package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A script is about 10 kB. If each request that gets NOSCRIPT sent the text, a slow link
// would be saturated. So one of the workers that wait for the same script sends it; the
// others retry by hash when that reply has arrived.

// loadScripts repeats the calls whose script the server did not know. The last step is
// for two cases: loads that failed, and calls that overtook the one with the text. Calls
// can overtake it if a Conn sends each batch over a connection of its own.
//
// It reports whether there were such calls.
func (p *Pipeline) loadScripts(ctx context.Context, until time.Time, b *batch) bool {
	own, others := p.divideUnknown(!until.IsZero(), b)
	if len(own)+len(others) == 0 {
		return false
	}
	var retries []int
	for i := range others {
		retries = append(retries, i)
	}
	p.setSent(b, retries, false)
	byHash := p.resend(ctx, until, b, own, true)
	if len(own) > 0 {
		p.loads.end(b)
	}
	for _, load := range others {
		p.wait(load)
	}
	retries = p.setSent(b, retries, true)
	byHash = append(byHash, p.resend(ctx, until, b, retries, false)...)
	if p.isAbandoned(b) {
		return true
	}
	p.resend(ctx, until, b, b.unknownScripts(byHash), true)
	return true
}

func (p *Pipeline) isAbandoned(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return b.abandoned
}

// scriptLoads are the scripts that are being sent to the server as text.
type scriptLoads struct {
	mu       sync.Mutex
	byScript map[*redisconn.Script]*scriptLoad
}

// A scriptLoad is a script that is being sent to the server.
type scriptLoad struct {
	by    *batch
	since time.Time
	done  chan struct{} // closed when the reply has arrived
}

// begin returns the load of a script, which is that of b if nobody else is sending it.
func (s *scriptLoads) begin(script *redisconn.Script, b *batch) *scriptLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	load := s.byScript[script]
	if load == nil {
		load = &scriptLoad{by: b, since: time.Now(), done: make(chan struct{})}
		if s.byScript == nil {
			s.byScript = make(map[*redisconn.Script]*scriptLoad)
		}
		s.byScript[script] = load
	}
	return load
}

// The time for which others wait for a load. Over a narrow link it takes seconds, and must not be
// begun again. Elsewhere its connection may have ended without a sign.
const (
	loadPatience   = 8 * time.Second
	narrowPatience = redisconn.LoadTimeout
)

// wait waits until a load has ended, or for too long.
func (p *Pipeline) wait(l *scriptLoad) {
	p.mu.Lock()
	patience := loadPatience
	if p.policy.congestion.limit > 0 {
		patience = narrowPatience
	}
	p.mu.Unlock()
	timer := time.NewTimer(time.Until(l.since.Add(patience)))
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	}
}

// setSent records whether the requests of some calls are sent. A server that does not know the
// script has done nothing. It returns the calls whose callers still wait.
func (p *Pipeline) setSent(b *batch, which []int, sent bool) (awaited []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range which {
		if b.calls[i].isAwaited() {
			awaited = append(awaited, i)
			b.calls[i].requests(func(r *Request) { r.sent = sent })
		}
	}
	return awaited
}

// end ends the loads of a batch.
func (s *scriptLoads) end(b *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for script, load := range s.byScript {
		if load.by == b {
			close(load.done)
			delete(s.byScript, script)
		}
	}
}

// divideUnknown divides the calls of unknown scripts. This worker sends those in own, as
// text or after one that it sends as text. Another worker is sending the scripts of those
// in others. A caller that sends its own request does not wait for a worker.
func (p *Pipeline) divideUnknown(isDirect bool, b *batch) (own []int, others map[int]*scriptLoad) {
	unknown := b.unknownScripts(nil)
	if len(unknown) == 0 {
		return nil, nil
	}
	others = make(map[int]*scriptLoad)
	for _, i := range unknown {
		load := p.loads.begin(b.cmds[i].Script, b)
		if load.by == b || isDirect {
			own = append(own, i)
		} else {
			others[i] = load
		}
	}
	return own, others
}

// resend sends some calls again. If whole, the first call of each script is sent as text,
// so that the server knows the script for the calls after it. It returns the other calls.
func (p *Pipeline) resend(ctx context.Context, until time.Time, b *batch, which []int, whole bool) (byHash []int) {
	byHash = make([]int, 0, len(which))
	if len(which) == 0 {
		return byHash
	}
	sent := make(map[*redisconn.Script]bool)
	cmds := make([]redisconn.Cmd, 0, len(which))
	for _, i := range which {
		cmd := b.cmds[i]
		if whole && !sent[cmd.Script] {
			sent[cmd.Script] = true
			cmd.Whole = true
		} else {
			byHash = append(byHash, i)
		}
		cmds = append(cmds, cmd)
	}
	replies := make([]redisconn.Reply, len(cmds))
	p.conn.Do(ctx, until, cmds, replies)
	for n, i := range which {
		b.replies[i] = replies[n]
	}
	return byHash
}

// unknownScripts returns those of the given calls, or of all if nil, whose script the
// server did not know.
func (b *batch) unknownScripts(of []int) (which []int) {
	for i, r := range b.replies {
		if IsUnknownScript(r.Err) && (of == nil || slices.Contains(of, i)) {
			which = append(which, i)
		}
	}
	return which
}

// IsUnknownScript reports whether a server does not know a script by its hash.
func IsUnknownScript(err error) bool { return redisconn.HasCode(err, "NOSCRIPT") }
