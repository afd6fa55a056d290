package drill

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// A Machine measures what the machine, and not the library, adds to a figure: how
// late a timer is, and after it a request over a new connection through a proxy of
// its own, in the same process at the same time. A bar holds for a machine that has
// nothing else to do; on a busy one the worst that happened to this control during
// the measurement is added to it.
type Machine struct {
	worst   atomic.Int64
	pending atomic.Pointer[time.Time] // when the sample that is being taken was due
}

// noServer is an address for a Machine that watches timers only.
const noServer = "127.0.0.1:1"

// WatchMachine watches until ctx ends. Where there is no server at addr, it watches
// timers only.
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
		m.note(time.Since(due))
		if ask(ctx, proxy.Addr()) == nil { // while there is a server
			m.note(time.Since(due))
		}
	}
}

// ask sends as many requests on a new connection as go-redis begins one with: HELLO,
// CLIENT SETINFO, and the command. A refusal is an answer, too.
func ask(ctx context.Context, addr string) error {
	server := redistest.Dial(addr)
	defer server.Close()
	for range 3 {
		_, err := server.Call(ctx, "PING")
		if err != nil && !errors.As(err, new(redisstore.ServerError)) {
			return err
		}
	}
	return nil
}

func (m *Machine) note(late time.Duration) {
	for {
		worst := m.worst.Load()
		if int64(late) <= worst || m.worst.CompareAndSwap(worst, int64(late)) {
			return
		}
	}
}

// Begin forgets what was before the measurement that begins now.
func (m *Machine) Begin() { m.worst.Store(0) }

// Late returns the worst sample since Begin, and counts the one under way: the test may
// be the first to run again.
func (m *Machine) Late() time.Duration {
	if due := m.pending.Load(); due != nil {
		m.note(time.Since(*due))
	}
	return time.Duration(m.worst.Load())
}

// Measure checks a figure against its bar, and measures again, a few times, if it is
// larger: what the library adds is there each time, and what the machine adds is not.
func (m *Machine) Measure(t *testing.T, what string, bar time.Duration, figure func() time.Duration) {
	t.Helper()
	const tries = 5
	for try := 1; ; try++ {
		m.Begin()
		have := figure()
		late := m.Late()
		t.Logf("FIGURE %-46s %10v   bar %v   control %v", what, have, bar, late)
		if have <= bar+late {
			return
		}
		if try == tries {
			t.Errorf("%s: %v, want at most %v (and %v for the busy machine)", what, have, bar, late)
			return
		}
	}
}
