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

// A judge counts the workers inside a lock: those of this process, and those of other processes,
// which connect to it. The system closes the connection of a killed process. It is safe for
// concurrent use.
type judge struct {
	listener net.Listener

	mu       sync.Mutex
	inside   int
	overlaps int
	fence    uint64         // the last one of dibs
	turns    map[string]int // by side
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
	j := &judge{listener: listener, turns: make(map[string]int), entered: make(map[string]chan struct{}), next: make(chan struct{})}
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

// serve counts a turn in another process. The process sends its side and its ID, and waits for the
// answer. It is inside until it sends a second line, or its connection ends.
func (j *judge) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	var side, id string
	if !lines.Scan() {
		return
	}
	if _, err := fmt.Sscan(lines.Text(), &side, &id); err != nil {
		return
	}
	if err := j.enter(side, 0); err != nil {
		return // enter counted it
	}
	close(j.victim(id))
	_, _ = fmt.Fprintln(conn, "ok")
	lines.Scan()
	j.leave()
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

// enter begins a side's turn. fence is zero if the side has none.
func (j *judge) enter(side string, fence uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inside++
	j.turns[side]++
	close(j.next)
	j.next = make(chan struct{})
	if j.inside > 1 {
		j.overlaps++
	}
	if fence == 0 {
		return nil
	}
	last := j.fence
	j.fence = fence
	if fence <= last {
		return fmt.Errorf("the fence %d follows %d", fence, last)
	}
	return nil
}

func (j *judge) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inside--
}

// nextTurn returns a channel that is closed by the next turn.
func (j *judge) nextTurn() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next
}

// visit enters in another process, works, and leaves. A victim stays inside until it is killed.
func visit(address, side, id string, work time.Duration) error {
	conn, err := net.Dial("tcp", address)
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
	if err := say(side, id); err != nil {
		return err
	}
	time.Sleep(work)
	return say("leave")
}
