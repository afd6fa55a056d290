package zktest

import (
	"net"
	"sync"
)

// A link forwards the connections that a member opens to another member.
type link struct {
	peer

	mu     sync.Mutex
	healed chan struct{} // closed by heal; nil if the link is not cut
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.healed == nil {
		l.healed = make(chan struct{})
	}
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.healed != nil {
		close(l.healed)
	}
	l.healed = nil
}

// wait waits until the link is not cut, and reports whether it was cut.
func (l *link) wait() (cut bool) {
	l.mu.Lock()
	healed := l.healed
	l.mu.Unlock()
	if healed != nil {
		<-healed
	}
	return healed != nil
}

// forward forwards a connection until a side closes it, or until a cut that delayed bytes is healed.
func (l *link) forward(a, b net.Conn) {
	var flows sync.WaitGroup
	for to, from := range map[net.Conn]net.Conn{a: b, b: a} {
		flows.Go(func() {
			l.copy(to, from)
			a.Close()
			b.Close()
		})
	}
	flows.Wait()
}

// copy copies bytes until an end or an error. During a cut these also wait.
func (l *link) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if l.wait() {
			return
		}
		if _, failure := to.Write(buffer[:n]); err != nil || failure != nil {
			return
		}
	}
}
