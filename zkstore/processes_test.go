package zkstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/zkstore"
)

// A span is a time during which a process certainly held the lock, in ns since 1970.
type span struct {
	fence    uint64
	from, to int64
}

func (s span) String() string {
	return fmt.Sprintf("fence %d, %d to %d, %v", s.fence, s.from, s.to, time.Duration(s.to-s.from))
}

// lockAgainAndAgain is a process that locks the name and prints what it sees: "in FENCE TIME" when
// it is locked, and "at TIME" while it is. Its arguments are the servers and the prefix.
func lockAgainAndAgain(out io.Writer, args []string) error {
	locks := dibs.New(zkstore.New(strings.Split(args[0], ","), zkstore.Prefix(args[1])), dibs.TTL(drillTTL), dibs.Timeout(patience))
	lines := bufio.NewWriter(out)
	for {
		err := locks.Mutex(drillName).Do(context.Background(), func(ctx context.Context) error {
			return printWhileHeld(ctx, lines)
		})
		if err != nil && !errors.Is(err, dibs.ErrLost) && !errors.Is(err, dibs.ErrUnavailable) {
			return err
		}
	}
}

// printWhileHeld prints the times at which the lease was valid: the time is read before the check, so
// a process that is stopped in between prints an earlier time.
func printWhileHeld(ctx context.Context, out *bufio.Writer) error {
	lease, err := dibs.LeaseOf(ctx, drillName)
	if err != nil {
		return err
	}
	work, word := rand.N(50*time.Millisecond), fmt.Sprintf("in %d", lease.Fence())
	if rand.IntN(3) == 0 {
		work *= 10 // so some processes are stopped while they hold the lock
	}
	for end := time.Now().Add(work); time.Now().Before(end); time.Sleep(time.Millisecond) {
		now := time.Now().UnixNano()
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintln(out, word, now)
		if err := out.Flush(); err != nil {
			return err
		}
		word = "at"
	}
	return nil
}

// readSpans reads the spans of a process until it ends.
func readSpans(t *testing.T, child *childtest.Child, began func()) (spans []span) {
	for line := range child.Lines() {
		var s span
		if _, err := fmt.Sscanf(line, "in %d %d", &s.fence, &s.from); err == nil {
			s.to = s.from
			spans = append(spans, s)
			began()
			continue
		}
		if _, err := fmt.Sscanf(line, "at %d", &spans[len(spans)-1].to); err != nil {
			t.Errorf("line %q: %v", line, err)
		}
	}
	return spans
}

// Processes are killed, or stopped for longer than their sessions, while they hold the lock or wait.
func TestProcessesEnd(t *testing.T) {
	t.Parallel()
	const processes = 4
	rounds := 6
	if isLong() {
		rounds = 100
	}
	server, prefix := sharedServer(t), newPrefix()
	p := &processDrill{t: t, locked: make(chan struct{}, 1)}
	for range processes {
		p.start(server.Endpoint(), prefix)
	}
	const locks = 5 // between two faults
	for round := range rounds {
		for range locks {
			p.wantLocked()
		}
		victim := p.last.Load()
		if round%2 == 0 {
			victim.Kill()
			p.replace(victim, server.Endpoint(), prefix)
			continue
		}
		must(t, victim.Process().Signal(syscall.SIGSTOP))
		p.pause(2 * drillTTL)
		must(t, victim.Process().Signal(syscall.SIGCONT))
	}
	p.wantLocked()
	for _, c := range p.children {
		c.Kill()
	}
	p.reading.Wait()
	p.check()
	wantNothing(t, connect(t, server), prefix, longestIdle)
}

// A processDrill reads what processes print.
type processDrill struct {
	t        *testing.T
	children []*childtest.Child
	locked   chan struct{} // contains a value after a process locked
	last     atomic.Pointer[childtest.Child]
	reading  sync.WaitGroup

	mu    sync.Mutex
	spans []span
}

func (p *processDrill) start(args ...string) *childtest.Child {
	child := childtest.Start(p.t, "lock", args...)
	p.children = append(p.children, child)
	p.reading.Go(func() {
		spans := readSpans(p.t, child, func() {
			p.last.Store(child)
			select {
			case p.locked <- struct{}{}:
			default:
			}
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		p.spans = append(p.spans, spans...)
	})
	return child
}

// replace starts a process in the place of another.
func (p *processDrill) replace(old *childtest.Child, args ...string) {
	p.start(args...)
	p.children = slices.DeleteFunc(p.children, func(c *childtest.Child) bool { return c == old })
}

// wantLocked waits until the lock is acquired again.
func (p *processDrill) wantLocked() {
	p.t.Helper()
	select {
	case <-p.locked:
	default:
	}
	begin := time.Now()
	select {
	case <-p.locked:
		if took := time.Since(begin); took > session {
			p.t.Logf("FIGURE the next entry after %v", took)
		}
	case <-time.After(longestIdle):
		p.t.Fatalf("nobody locked within %v", longestIdle)
	}
}

// pause waits for a time, but not for a result.
func (p *processDrill) pause(d time.Duration) { <-time.After(d) }

// check checks that no two processes held the lock at once, and that fences grew.
func (p *processDrill) check() {
	slices.SortFunc(p.spans, func(a, b span) int { return int(a.from - b.from) })
	for i, s := range p.spans[:max(len(p.spans)-1, 0)] {
		next := p.spans[i+1]
		if next.from <= s.to {
			p.t.Errorf("two held the lock: %v and %v", s, next)
		}
		if next.fence <= s.fence {
			p.t.Errorf("the fence did not grow: %v before %v", s, next)
		}
	}
	p.t.Logf("FIGURE %d locks", len(p.spans))
}
