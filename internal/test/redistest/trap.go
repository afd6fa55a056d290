package redistest

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// A trap acts on a single request. It is armed in the proxy and matched when a matching request
// arrives. It fires when this request or its reply would be delivered, after any delay.
type trap struct {
	match  []byte // in lower case
	action func(t *trap, l *link, c chunk) (forward bool)
	fired  chan struct{} // closed when the trap fires

	mu       sync.Mutex
	released bool  // for a holding trap
	holder   *link // the link holding the request
}

// CutNextReply forwards the next request containing match, and resets its connection when the reply
// arrives: the server has executed it, but the client cannot know. Case is ignored. The channel is
// closed after the reset.
func (p *Proxy) CutNextReply(match string) (cut <-chan struct{}) {
	return p.arm(match, onReply(func(t *trap, l *link, _ chunk) bool {
		l.reset()
		close(t.fired)
		return false
	})).fired
}

// MuteNextReply is like CutNextReply, but drops the reply and leaves the connection open
// and silent in both directions until Thaw, Reset or Close.
func (p *Proxy) MuteNextReply(match string) (muted <-chan struct{}) {
	return p.arm(match, onReply(lose)).fired
}

// LoseNextRequest drops the next request containing match. Its connection is silent from then on,
// as in MuteNextReply.
func (p *Proxy) LoseNextRequest(match string) (lost <-chan struct{}) {
	return p.arm(match, lose).fired
}

// HoldNextRequest holds the next request containing match, and silences its connection, until
// release. Then the request is delivered, long after its sender has given up: even if the client's
// side has been closed or reset, and even during a Freeze. release returns when the bytes are
// written. If no request is held, it disarms the trap.
func (p *Proxy) HoldNextRequest(match string) (held <-chan struct{}, release func()) {
	t := p.arm(match, hold)
	return t.fired, func() {
		p.disarm(t)
		t.release()
	}
}

func lose(t *trap, l *link, _ chunk) (forward bool) {
	l.silence()
	close(t.fired)
	return false
}

func hold(t *trap, l *link, c chunk) (forward bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released {
		return true
	}
	l.hold(c.data)
	t.holder = l
	close(t.fired)
	return false
}

func (t *trap) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.released = true
	if t.holder != nil {
		t.holder.release()
	}
}

// onReply forwards the request and acts on its reply. It waits for the reply before the
// request is written, because the reply may come at once.
func onReply(does func(*trap, *link, chunk) bool) func(*trap, *link, chunk) bool {
	return func(t *trap, l *link, _ chunk) bool {
		l.setReplyTrap(&trap{action: does, fired: t.fired})
		return true
	}
}

// fire acts on a chunk, and reports whether to forward it. A nil trap forwards it.
func (t *trap) fire(l *link, c chunk) (forward bool) {
	return t == nil || t.action(t, l, c)
}

func (p *Proxy) arm(match string, does func(*trap, *link, chunk) bool) *trap {
	t := &trap{
		match:  []byte(strings.ToLower(match)),
		action: does,
		fired:  make(chan struct{}),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

func (p *Proxy) disarm(t *trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = slices.DeleteFunc(p.traps, func(other *trap) bool { return other == t })
}

// matchRequest removes and returns the oldest matching trap.
func (p *Proxy) matchRequest(data []byte) *trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.traps) == 0 {
		return nil
	}
	data = bytes.ToLower(data)
	for i, t := range p.traps {
		if bytes.Contains(data, t.match) {
			p.traps = slices.Delete(p.traps, i, i+1)
			return t
		}
	}
	return nil
}

func (l *link) setReplyTrap(t *trap) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.reply = t
}

func (l *link) removeReplyTrap() *trap {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	t := l.reply
	l.reply = nil
	return t
}
