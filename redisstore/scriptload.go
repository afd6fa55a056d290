package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// A script is about 10 kB. If each request that gets NOSCRIPT sent the text, a slow link
// would be saturated. So one of the workers that wait for the same script sends it; the
// others retry by hash when that reply has arrived.

// loadScripts repeats the calls whose script the server did not know. The last step is
// for two cases: loads that failed, and calls that overtook the one with the text. Calls
// can overtake it if a Conn sends each batch over a connection of its own.
func (p *pipeliner) loadScripts(ctx context.Context, b *batch) {
	own, others := p.divideUnknown(ctx, b)
	if len(own)+len(others) == 0 {
		return
	}
	byHash := p.resend(ctx, b, own, true)
	p.endLoads(b, own)
	var retries []int
	for i, loaded := range others {
		<-loaded
		retries = append(retries, i)
	}
	byHash = append(byHash, p.resend(ctx, b, retries, false)...)
	p.resend(ctx, b, b.unknownScripts(byHash), true)
}

// divideUnknown divides the calls of unknown scripts. This worker sends those in own, as
// text or after one that it sends as text. Another worker is sending the scripts of those
// in others. A caller that sends its own request does not wait for a worker.
func (p *pipeliner) divideUnknown(ctx context.Context, b *batch) (own []int, others map[int]<-chan struct{}) {
	unknown := b.unknownScripts(nil)
	if len(unknown) == 0 {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loading == nil {
		p.loading = make(map[*script]*scriptLoad)
	}
	others = make(map[int]<-chan struct{})
	_, isDirect := ctx.Deadline()
	for _, i := range unknown {
		s := b.calls[i].script
		load := p.loading[s]
		if load == nil {
			load = &scriptLoad{by: b, done: make(chan struct{})}
			p.loading[s] = load
		}
		if load.by == b || isDirect {
			own = append(own, i)
		} else {
			others[i] = load.done
		}
	}
	return own, others
}

// A scriptLoad is a script that is being sent to the server.
type scriptLoad struct {
	by   *batch
	done chan struct{} // closed when the reply has arrived
}

func (p *pipeliner) endLoads(b *batch, own []int) {
	if len(own) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, l := range p.loading {
		if l.by == b {
			close(l.done)
			delete(p.loading, s)
		}
	}
}

// resend sends some calls again. If whole, the first call of each script is sent as text,
// so that the server knows the script for the calls after it. It returns the other calls.
func (p *pipeliner) resend(ctx context.Context, b *batch, which []int, whole bool) (byHash []int) {
	byHash = make([]int, 0, len(which))
	if len(which) == 0 {
		return byHash
	}
	sent := make(map[*script]bool)
	cmds := make([]Cmd, 0, len(which))
	for _, i := range which {
		cmd := b.cmds[i]
		if s := b.calls[i].script; whole && !sent[s] {
			sent[s] = true
			cmd = append(Cmd{"EVAL", s.text}, cmd[2:]...)
		} else {
			byHash = append(byHash, i)
		}
		cmds = append(cmds, cmd)
	}
	replies := make([]Reply, len(cmds))
	p.conn.Do(ctx, cmds, replies)
	for n, i := range which {
		b.replies[i] = replies[n]
	}
	return byHash
}

// unknownScripts returns those of the given calls, or of all if nil, whose script the
// server did not know.
func (b *batch) unknownScripts(of []int) (which []int) {
	for i, r := range b.replies {
		if unknownScript(r.Err) && (of == nil || slices.Contains(of, i)) {
			which = append(which, i)
		}
	}
	return which
}

func unknownScript(err error) bool {
	if err == nil {
		return false
	}
	var s ServerError
	return errors.As(err, &s) && strings.HasPrefix(string(s), "NOSCRIPT")
}
