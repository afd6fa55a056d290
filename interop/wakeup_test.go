package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

func wakeUps() []column {
	return []column{
		one("their waiter", theirWaiter),
		one("dibs' waiter", dibsWaiter),
	}
}

// theirWaiter measures how long their waiter waits after a release by dibs.
func theirWaiter(t *testing.T, r *row, name string) string {
	return longestOf(t, func() time.Duration {
		lease, err := r.dibs.Mutex(name).TryLock(t.Context(), dibs.TTL(r.waitedTTL()))
		mustLease(t, lease, err)
		acquired := make(chan error, 1)
		var l lock
		waiting := r.watch(t, name)
		go func() {
			var err error
			l, err = r.theirs.lock(t.Context(), name, longTTL)
			acquired <- err
		}()
		select {
		case <-waiting:
		case err := <-acquired:
			t.Fatalf("theirs: before the release: %v", err)
		}
		wantNotified := r.listen(t, name)
		time.Sleep(rand.N(200 * time.Millisecond)) // not at a fixed time in their polling
		mustUnlock(t, lease)
		released := time.Now()
		if err := <-acquired; err != nil {
			t.Fatalf("theirs: %v", err)
		}
		took := time.Since(released)
		wantNotified()
		r.release(t, name, l)
		return took
	})
}

// waitedTTL is the TTL of a lease for which Redisson's client waits. A client that is not notified
// waits until its end, which is too late. But clients that sleep miss a message by themselves.
func (r *row) waitedTTL() time.Duration {
	if r.sleeps {
		return patience / 2
	}
	return longTTL
}

// listen waits until a client of Redisson listens for the release of a name. The returned function
// checks that a message was sent to the client. Other libraries poll.
func (r *row) listen(t *testing.T, name string) (wantNotified func()) {
	t.Helper()
	if !r.redisson {
		return func() {}
	}
	var channels []string
	eventually(t, "the waiter listens", func() (err error) {
		channels, err = r.rdb.PubSubChannels(t.Context(), "redisson_lock__channel:{"+name+"}*").Result()
		if err == nil && len(channels) == 0 {
			err = errors.New("nobody listens")
		}
		return err
	})
	messages := r.rdb.Subscribe(t.Context(), channels...)
	t.Cleanup(func() { messages.Close() })
	if _, err := messages.Receive(t.Context()); err != nil { // the confirmation
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := messages.ReceiveMessage(ctx); err != nil {
			t.Errorf("no message on %q after the release by dibs: %v", channels, err)
		}
		messages.Close()
	}
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
		return max(o.at.Sub(released), 0)
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
