package zkstore

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/driver/bootclock"
)

func newTestSession() *session {
	return &session{
		link: &link{clock: bootclock.New(), timeout: 10 * time.Second, changed: make(chan struct{})},
		tick: 2 * time.Second, proved: make(chan struct{}),
	}
}

// A write proves the session from the last request that was answered a tick before it.
func TestWriteProves(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name    string
		touches []touch
		sent    time.Duration
		want    time.Duration
	}{
		{"no request before", nil, 9 * s, 0},
		{"answered a tick before", []touch{{1 * s, 2 * s}}, 4 * s, 11 * s},
		{"answered later", []touch{{1 * s, 2*s + 1}}, 4 * s, 0},
		{"the last of several", []touch{{1 * s, 1 * s}, {2 * s, 2 * s}, {3 * s, 3 * s}}, 4 * s, 12 * s},
	} {
		t.Run(c.name, func(t *testing.T) {
			session := newTestSession()
			for _, touch := range c.touches {
				session.touch(touch.sent, touch.answered)
			}
			session.wrote(c.sent, c.sent)
			if session.until != c.want {
				t.Errorf("it lasts until %v, want %v", session.until, c.want)
			}
		})
	}
}

// A proof that comes late takes nothing back.
func TestLateProof(t *testing.T) {
	session := newTestSession()
	session.extendTo(20 * time.Second)
	session.touch(time.Second, time.Second)
	session.wrote(5*time.Second, 5*time.Second)
	if session.until != 20*time.Second {
		t.Errorf("it lasts until %v", session.until)
	}
}

// ZooKeeper writes all paths of an ended session into a transaction, which must not become too large.
func TestSessionIsFull(t *testing.T) {
	session := newTestSession()
	const size = 1000
	n := 0
	for session.use(size) {
		n++
	}
	if n != mostPaths/size {
		t.Errorf("%d entries of %d bytes", n, size)
	}
	session.leave(size)
	if !session.use(size) {
		t.Error("no place after one has left")
	}
}

// A session that somebody uses is never retired, and a retired session cannot be used.
func TestUseAndRetire(t *testing.T) {
	session := newTestSession()
	if !session.use(1) || session.retire(0) {
		t.Error("a used session was retired")
	}
	session.leave(1)
	session.retired = true
	if session.use(1) {
		t.Error("a retired session was used")
	}
}

// A server that gives the session another ID or timeout serves another session.
func TestOtherSession(t *testing.T) {
	for name, c := range map[string]struct {
		id      int64
		timeout time.Duration
		ends    bool
	}{
		"the same":                 {7, 10 * time.Second, false},
		"another ID":               {8, 10 * time.Second, true},
		"another timeout":          {7, 9 * time.Second, true},
		"none: the server ends it": {0, 0, false},
	} {
		l := newTestSession().link
		if err := l.accept(7, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := l.accept(c.id, c.timeout); (err != nil) != c.ends || l.ended != c.ends {
			t.Errorf("%s: error %v, ended %v", name, err, l.ended)
		}
	}
}

// Without a server for twice its timeout, a session is over, although nobody says so.
func TestForgottenSession(t *testing.T) {
	l := newTestSession().link
	l.timeout, l.id = 0, 0
	if l.isForgotten() {
		t.Error("a session that never began is forgotten")
	}
	if err := l.accept(7, time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	for begin := l.clock.Now(); l.clock.Now()-begin < time.Microsecond; {
	}
	if !l.isForgotten() {
		t.Error("a session without a server is not forgotten")
	}
	l.ready = true
	if l.isForgotten() {
		t.Error("a session with a server is forgotten")
	}
}
