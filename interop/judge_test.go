//go:build unix

package interop

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// A mode is how a worker holds a lock.
type mode string

const (
	exclusive mode = "exclusive"
	shared    mode = "shared"
)

// A judge counts the workers inside a lock: those of this process, and those of other processes,
// which connect to it. The system closes the connection of a killed process. It is safe for
// concurrent use.
type judge struct {
	listener net.Listener

	mu       sync.Mutex
	inside   map[mode]int
	overlaps int
	fences   map[mode]uint64 // the largest ones of dibs
	turns    map[string]int  // by side
	entered  map[string]chan struct{}
	next     chan struct{} // closed by the next turn
}

func newJudge(t *testing.T) *judge {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	j := &judge{
		listener: listener, inside: make(map[mode]int), fences: make(map[mode]uint64),
		turns: make(map[string]int), entered: make(map[string]chan struct{}), next: make(chan struct{}),
	}
	go j.accept()
	return j
}

func (j *judge) accept() {
	for {
		conn, err := j.listener.Accept()
		if err != nil {
			return
		}
		go j.serve(conn)
	}
}

// serve counts a turn in another process. The process sends its side, its ID and the mode, and waits
// for the answer. It is inside until it sends a second line, or its connection ends.
func (j *judge) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	var side, id string
	var m mode
	if !lines.Scan() {
		return
	}
	if _, err := fmt.Sscan(lines.Text(), &side, &id, &m); err != nil {
		return
	}
	if err := j.enter(side, m, 0); err != nil {
		return // enter counted it
	}
	j.announce(id)
	_, _ = fmt.Fprintln(conn, "ok")
	lines.Scan()
	j.leave(m)
	_, _ = fmt.Fprintln(conn, "ok")
}

// victim returns a channel that is closed when a process with an ID enters.
func (j *judge) victim(id string) chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entered[id] == nil {
		j.entered[id] = make(chan struct{})
	}
	return j.entered[id]
}

// announce closes the channel of victim. A process that enters again has the same ID.
func (j *judge) announce(id string) {
	entered := j.victim(id)
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-entered:
	default:
		close(entered)
	}
}

// enter begins a side's turn. fence is zero if the side has none.
func (j *judge) enter(side string, m mode, fence uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.inside[exclusive] > 0 || m == exclusive && j.inside[shared] > 0 {
		j.overlaps++
	}
	j.inside[m]++
	j.turns[side]++
	close(j.next)
	j.next = make(chan struct{})
	if fence == 0 {
		return nil
	}
	last := j.fences[exclusive]
	if m == exclusive {
		last = max(last, j.fences[shared]) // two shared holders can enter in any order
	}
	j.fences[m] = max(fence, j.fences[m])
	if fence <= last {
		return fmt.Errorf("the fence %d follows %d", fence, last)
	}
	return nil
}

func (j *judge) leave(m mode) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inside[m]--
}

// nextTurn returns a channel that is closed by the next turn.
func (j *judge) nextTurn() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next
}

// visit enters in another process, works, and leaves. A victim stays inside until it is killed.
func (p process) visit() error {
	conn, err := net.Dial("tcp", p.judge)
	if err != nil {
		return err
	}
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	say := func(words ...any) error {
		if _, err := fmt.Fprintln(conn, words...); err != nil {
			return err
		}
		if !lines.Scan() || lines.Text() != "ok" {
			return errors.Join(fmt.Errorf("the test answers %q", lines.Text()), lines.Err())
		}
		return nil
	}
	if err := say(p.side, p.id, p.mode); err != nil {
		return err
	}
	time.Sleep(p.inside)
	return say("leave")
}
