package drill

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Machine measures the delay added to a measurement by the machine, not the library. It samples
// how late a timer fires, and then a request on a new connection through its own proxy, in the same
// process at the same time. Limits hold for an idle machine. On a busy machine, the worst sample
// during the measurement is added to the limit.
type Machine struct {
	worst   atomic.Int64
	pending atomic.Pointer[time.Time] // due time for the current sample
}

// noServer is an address for a Machine that only samples timers.
const noServer = "127.0.0.1:1"

// WatchMachine samples until ctx ends. If there is no server at addr, it samples timers
// only.
func WatchMachine(ctx context.Context, addr string) *Machine {
	m := new(Machine)
	go m.watch(ctx, addr)
	return m
}

func (m *Machine) watch(ctx context.Context, addr string) {
	const every = 10 * time.Millisecond
	proxy, err := redistest.StartProxy(addr)
	if err != nil {
		panic(err)
	}
	defer proxy.Close()
	tick := time.NewTimer(every)
	defer tick.Stop()
	for {
		due := time.Now().Add(every)
		m.pending.Store(&due)
		tick.Reset(every)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		m.record(time.Since(due))
		if ping(ctx, proxy.Addr()) == nil { // only while the server is up
			m.record(time.Since(due))
		}
	}
}

// ping sends as many requests on a new connection as go-redis does before its first
// reply: HELLO, CLIENT SETINFO, and the command. An error reply counts as a reply.
func ping(ctx context.Context, addr string) error {
	server := redistest.Dial(addr)
	defer server.Close()
	for range 3 {
		_, err := server.Call(ctx, "PING")
		if err != nil && !errors.As(err, new(redisconn.ServerError)) {
			return err
		}
	}
	return nil
}

func (m *Machine) record(late time.Duration) {
	for {
		worst := m.worst.Load()
		if int64(late) <= worst || m.worst.CompareAndSwap(worst, int64(late)) {
			return
		}
	}
}

// Begin starts a measurement: it resets the worst sample.
func (m *Machine) Begin() { m.worst.Store(0) }

// Late returns the worst sample since Begin. It includes the current sample, because the
// test may be the first goroutine to run again.
func (m *Machine) Late() time.Duration {
	if due := m.pending.Load(); due != nil {
		m.record(time.Since(*due))
	}
	return time.Duration(m.worst.Load())
}

// Measure checks a measurement against its limit. If it is too large, it repeats the measurement a
// few times: the library's delays recur, the machine's do not.
func (m *Machine) Measure(t *testing.T, what string, bar time.Duration, figure func() time.Duration) {
	t.Helper()
	const tries = 5
	for try := 1; ; try++ {
		m.Begin()
		got := figure()
		late := m.Late()
		t.Logf("FIGURE %-46s %10v   limit %v   control %v", what, got, bar, late)
		if got <= bar+late {
			return
		}
		if try == tries {
			t.Errorf("%s: %v, want at most %v (plus %v for the busy machine)", what, got, bar, late)
			return
		}
	}
}
