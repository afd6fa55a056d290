package redistest

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// A trap waits for one request and does one thing to it. Its life: armed in the
// proxy; spotted, when a request arrives that matches; sprung, when that request
// (or its reply) would have been delivered, after whatever delay there is.
type trap struct {
	match  []byte // in lower case
	does   func(t *trap, l *link, c chunk) (forward bool)
	sprung chan struct{} // closed when it has happened

	mu       sync.Mutex
	released bool  // of a trap that holds
	holder   *link // where it holds
}

// CutNextReply lets the next request that contains match through to the server,
// and resets its connection when the reply arrives: the server has done it, the
// client cannot know. Letters match in either case. The channel is closed when
// it has happened.
func (p *Proxy) CutNextReply(match string) (cut <-chan struct{}) {
	return p.arm(match, onReply(func(t *trap, l *link, _ chunk) bool {
		l.reset()
		close(t.sprung)
		return false
	})).sprung
}

// MuteNextReply is as CutNextReply, but swallows the reply and leaves the
// connection open and mute, both ways, until Thaw, Reset or Close.
func (p *Proxy) MuteNextReply(match string) (muted <-chan struct{}) {
	return p.arm(match, onReply(lose)).sprung
}

// LoseNextRequest loses the next request that contains match. Its connection is
// mute from then on, as in MuteNextReply.
func (p *Proxy) LoseNextRequest(match string) (lost <-chan struct{}) {
	return p.arm(match, lose).sprung
}

// HoldNextRequest keeps the next request that contains match from the server,
// and its connection is mute from then on, until release: then the request is
// delivered, long after its sender has given up, even if the client's side has
// been closed or reset meanwhile, and even through a Freeze. Release returns
// when the bytes are written. One that finds nothing held yet disarms the trap.
func (p *Proxy) HoldNextRequest(match string) (held <-chan struct{}, release func()) {
	t := p.arm(match, hold)
	return t.sprung, func() {
		p.disarm(t)
		t.release()
	}
}

func lose(t *trap, l *link, _ chunk) (forward bool) {
	l.silence()
	close(t.sprung)
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
	close(t.sprung)
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

// onReply forwards the request and does the deed to its reply. The reply is
// expected from before the request is written, since it may come at once.
func onReply(does func(*trap, *link, chunk) bool) func(*trap, *link, chunk) bool {
	return func(t *trap, l *link, _ chunk) bool {
		l.expect(&trap{does: does, sprung: t.sprung})
		return true
	}
}

// spring does to a chunk what its trap is for, and reports whether to forward it.
// A nil trap lets it pass.
func (t *trap) spring(l *link, c chunk) (forward bool) {
	return t == nil || t.does(t, l, c)
}

func (p *Proxy) arm(match string, does func(*trap, *link, chunk) bool) *trap {
	t := &trap{
		match:  []byte(strings.ToLower(match)),
		does:   does,
		sprung: make(chan struct{}),
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

// spotRequest takes out the oldest trap that matches.
func (p *Proxy) spotRequest(data []byte) *trap {
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

func (l *link) expect(t *trap) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.reply = t
}

func (l *link) spotReply() *trap {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	t := l.reply
	l.reply = nil
	return t
}
