package drill

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// Stale closes all connections of a client with many idle connections at once, as a restarting
// proxy or server does, with and without subscriptions. No lease should be lost, and a lock and
// unlock right afterwards should succeed.
func (o Opener) Stale(t *testing.T) {
	for _, c := range []struct {
		idle int
		ttl  time.Duration
	}{
		{10, 2 * time.Second}, {30, 2 * time.Second}, {60, 2 * time.Second}, {60, 5 * time.Second},
	} {
		for _, listens := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d idle, TTL %v, listens %v", c.idle, c.ttl, listens), func(t *testing.T) {
				t.Parallel()
				o.stale(t, c.idle, c.ttl, listens)
			})
		}
	}
}

// stale runs a scenario, and runs it again if a lease was lost while the machine was too
// slow for a renewal.
func (o Opener) stale(t *testing.T, idle int, ttl time.Duration, listens bool) {
	const tries = 5
	server := redistest.Start(t)
	if !listens { // so the end of a subscription gives no hint
		server.MustCmd(t, "ACL", "SETUSER", "default", "resetchannels")
	}
	machine := WatchMachine(t.Context(), server.Addr())
	for try := 1; ; try++ {
		machine.Begin()
		err := o.reset(t, server, idle, ttl)
		if err == nil {
			return
		}
		if late := machine.Late(); late < ttl/8 || try == tries {
			t.Fatalf("%v (control %v)", err, late)
		}
	}
}

// reset resets all a client's connections twice, and returns the reason for a lost lease.
func (o Opener) reset(t *testing.T, server *redistest.Server, idle int, ttl time.Duration) error {
	proxy := redistest.NewProxy(t, server.Addr())
	client := dibs.New(o.Warm(t, proxy.Addr(), idle), dibs.TTL(ttl))
	defer client.Close()
	held := []*dibs.Lease{Lock(t, client, "held 0"), Lock(t, client, "held 1"), Lock(t, client, "held 2")}
	proxy.Reset()
	for i := range 5 {
		start := time.Now()
		Unlock(t, Lock(t, client, fmt.Sprint("after ", i)))
		if i == 0 {
			t.Logf("FIGURE lock and unlock after the reset took %v", time.Since(start))
		}
	}
	proxy.Reset()
	Unlock(t, held[0]) // the first to use a connection after the reset
	select {
	case <-time.After(2 * ttl):
	case <-held[1].Context().Done():
	case <-held[2].Context().Done():
	}
	var errs []error
	for _, l := range held[1:] {
		err := l.Err()
		errs = append(errs, err)
		if err == nil {
			Unlock(t, l)
		}
	}
	return errors.Join(errs...)
}

// Forgotten restarts a server without its data. The holder is notified about as soon as a test
// client's holder without stale connections.
func (o Opener) Forgotten(t *testing.T) {
	const slower = 500 * time.Millisecond
	for _, idle := range []int{10, 30, 60} {
		t.Run(fmt.Sprint(idle), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			plain := redistest.Dial(server.Addr())
			t.Cleanup(plain.Close)
			has, control := lostAt(t, o.Warm(t, server.Addr(), idle), "ours"), lostAt(t, redisstore.New(plain), "control")
			Eventually(t, "both listen", func() bool {
				channels, _ := server.MustCmd(t, "PUBSUB", "CHANNELS").([]any)
				return len(channels) == 2
			})
			machine := WatchMachine(t.Context(), noServer)
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			waitFor := func(ended <-chan time.Time) time.Duration {
				select {
				case at := <-ended:
					return at.Sub(start)
				case <-time.After(Generous):
					t.Fatal("the holder is not notified")
					return 0
				}
			}
			have, want := waitFor(has), waitFor(control)
			t.Logf("FIGURE notified %v after the restart, the control %v", have, want)
			if have > want+slower+machine.Late() {
				t.Errorf("notified after %v, the control after %v", have, want)
			}
		})
	}
}

// lostAt locks a name, and returns a channel with the time when the holder was notified about the
// loss.
func lostAt(t *testing.T, s driver.Store, name string) <-chan time.Time {
	t.Helper()
	client := dibs.New(s, dibs.TTL(time.Minute))
	t.Cleanup(func() { client.Close() })
	at := make(chan time.Time, 1)
	l := Lock(t, client, name)
	context.AfterFunc(l.Context(), func() { at <- time.Now() })
	return at
}
