package interop

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

func wakeUps() []column {
	return []column{
		one("their waiter", theirWaiter),
		one("dibs' waiter", dibsWaiter),
	}
}

// theirWaiter measures how long their waiter waits after a release by dibs.
func theirWaiter(t *testing.T, r *row, name string) string {
	const wait = 5 * time.Second
	return longestOf(t, func() time.Duration {
		lease, err := r.dibs.Mutex(name).TryLock(t.Context())
		mustLease(t, lease, err)
		acquired := make(chan error, 1)
		var l lock
		waiting := r.watch(t, name)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			var err error
			l, err = r.theirs.lock(ctx, name, longTTL)
			acquired <- err
		}()
		select {
		case <-waiting:
		case err := <-acquired:
			t.Fatalf("theirs: before the release: %v", err)
		}
		time.Sleep(rand.N(200 * time.Millisecond)) // not at a fixed time in their polling
		mustUnlock(t, lease)
		released := time.Now()
		if err := <-acquired; err != nil {
			t.Fatalf("theirs: %v", err)
		}
		took := time.Since(released)
		r.release(t, name, l)
		return took
	})
}

// dibsWaiter measures a dibs waiter's waiting time after their release.
func dibsWaiter(t *testing.T, r *row, name string) string {
	return longestOf(t, func() time.Duration {
		l := r.acquire(t, name, longTTL)
		type outcome struct {
			at  time.Time
			err error
		}
		acquired := make(chan outcome, 1)
		go func() {
			lease, err := r.lock(t.Context(), name)
			at := time.Now()
			if err == nil {
				err = lease.Unlock()
			}
			acquired <- outcome{at, err}
		}()
		waitUntilQueued(t, r.dibs, name, 1)
		time.Sleep(rand.N(200 * time.Millisecond)) // not at a fixed time in dibs' polling
		r.release(t, name, l)
		released := time.Now()
		o := <-acquired
		if o.err != nil {
			t.Fatalf("dibs: %v", o.err)
		}
		took := max(o.at.Sub(released), 0)
		if took > recheck+slack {
			t.Errorf("dibs: acquired %v after the release, want at most %v", took, recheck)
		}
		return took
	})
}

func longestOf(t *testing.T, measure func() time.Duration) string {
	t.Helper()
	const measurements = 3
	var longest time.Duration
	for range measurements {
		longest = max(longest, measure())
		if t.Failed() {
			break
		}
	}
	return fmt.Sprintf("%d ms", longest.Milliseconds())
}

// watch returns a channel closed when the server receives a command with the lock key.
func (r *row) watch(t *testing.T, name string) <-chan struct{} {
	t.Helper()
	conn, err := net.Dial("tcp", r.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	lines := bufio.NewScanner(conn)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %v, %v, %q", err, lines.Err(), lines.Text())
	}
	quoted := strconv.Quote(r.key(name))
	seen := make(chan struct{})
	go func() {
		defer conn.Close()
		for lines.Scan() {
			if strings.Contains(lines.Text(), quoted) {
				close(seen)
				return
			}
		}
	}()
	return seen
}
