package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A script is about 10 kB. If each request that gets NOSCRIPT sent the text, a slow link would be
// saturated. So only a single worker sends a given script; the others retry by hash when the reply
// has arrived.

// loadScripts repeats the calls whose script the server did not know. The last step handles two
// cases: failed loads, and calls that overtook the call with the text. Calls can overtake it if a
// Conn sends each batch over its own connection.
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

// scriptLoads are the scripts that workers are sending to the server as text.
type scriptLoads struct {
	mu       sync.Mutex
	byScript map[*redisconn.Script]*scriptLoad
}

// A scriptLoad is a script that a worker is sending to the server.
type scriptLoad struct {
	by    *batch
	since time.Time
	done  chan struct{} // closed when the reply arrives
}

// begin returns the load for a script. It is owned by b if no other batch is sending this script.
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

// wait waits until a load has ended, or its time limit has passed.
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

// setSent records whether the requests in some calls are sent. A server that does not know the
// script has done nothing. setSent returns the calls whose callers still wait.
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

// end ends a batch's loads.
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

// divideUnknown divides the calls with unknown scripts. This worker sends the calls in own, either
// as text or after a call with the text. Another worker is sending the scripts for the calls in
// others. A caller that sends its own request does not wait for a worker.
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

// resend repeats some calls. With whole, the first call for each script is sent as text, so that
// the server has the script for later calls. It returns the remaining calls.
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

// unknownScripts returns the calls, among those given or among all if nil, whose script the server
// did not know.
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
