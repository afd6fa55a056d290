package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// A script is some 10 kB, and each request that finds it unknown could send it: on a slow
// link that is all that the link does. So of all that wait for the same server one sends
// it, and the others ask again when that has been answered.

// teach has the scripts done that the server did not know. The last step is for calls that
// overtook the one with the text, as they can where a Conn sends each over a connection of
// its own, and for a lesson that failed.
func (p *pump) teach(ctx context.Context, b *batch) {
	mine, others := p.lessons(ctx, b)
	if len(mine)+len(others) == 0 {
		return
	}
	asked := p.again(ctx, b, mine, true)
	p.endLessons(b, mine)
	var after []int
	for i, lesson := range others {
		<-lesson
		after = append(after, i)
	}
	asked = append(asked, p.again(ctx, b, after, false)...)
	p.again(ctx, b, b.unknown(asked), true)
}

// lessons divides the calls of unknown scripts into those that this worker sends whole,
// or after one that does, and those whose script another worker is sending. A caller that
// does a worker's part waits for nobody.
func (p *pump) lessons(ctx context.Context, b *batch) (mine []int, others map[int]<-chan struct{}) {
	unknown := b.unknown(nil)
	if len(unknown) == 0 {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.teaching == nil {
		p.teaching = make(map[*script]*lesson)
	}
	others = make(map[int]<-chan struct{})
	_, hurries := ctx.Deadline()
	for _, i := range unknown {
		s := b.calls[i].script
		under := p.teaching[s]
		if under == nil {
			under = &lesson{by: b, over: make(chan struct{})}
			p.teaching[s] = under
		}
		if under.by == b || hurries {
			mine = append(mine, i)
		} else {
			others[i] = under.over
		}
	}
	return mine, others
}

// A lesson is a script that is on its way to the server.
type lesson struct {
	by   *batch
	over chan struct{} // closed
}

func (p *pump) endLessons(b *batch, mine []int) {
	if len(mine) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, l := range p.teaching {
		if l.by == b {
			close(l.over)
			delete(p.teaching, s)
		}
	}
}

// again sends some calls once more. If whole, the first of each script is sent with its
// text, from which the server knows it for those behind it. It returns the others.
func (p *pump) again(ctx context.Context, b *batch, which []int, whole bool) (byHash []int) {
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

// unknown returns which of these calls, or of all for nil, the server did not know the
// script of.
func (b *batch) unknown(of []int) (which []int) {
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
