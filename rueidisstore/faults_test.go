package rueidisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/rueidis"
)

// obtain is drill.Obtain for a mutex.
func obtain(t *testing.T, c *dibs.Client, name string) *dibs.Lease {
	t.Helper()
	return drill.Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return c.Mutex(name).Lock(ctx) })
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("have error %v, want %v", err, want)
	}
}

// pipelining makes rueidis pipeline on its connections from the start, as it does under
// load.
func pipelining(o *rueidis.ClientOption) { o.AlwaysPipelining = true }

func sequential(*rueidis.ClientOption) {}

var states = map[string]func(*rueidis.ClientOption){"sequential": sequential, "pipelining": pipelining}

func TestClosedRueidisClient(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start, "cluster": redistest.StartClusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			client := dial(t, server.Addr())
			locks := open(t, client)
			l := drill.Lock(t, locks, job)
			client.Close()
			drill.Eventually(t, "all connections are closed", func() bool { // each separately
				for range 10 {
					l, err := locks.Mutex("other").TryLock(t.Context())
					if err == nil {
						_ = l.Unlock() // the connection may be closed by now
					}
					if !errors.Is(err, redisconn.ErrClosed) {
						return false
					}
				}
				return true
			})
			machine := drill.WatchMachine(t.Context(), server.Addr())
			machine.Measure(t, "closed client", time.Second, func() time.Duration {
				start := time.Now()
				_, err := locks.Mutex("other").Lock(t.Context())
				wantErr(t, err, dibs.ErrUnavailable)
				wantErr(t, err, redisconn.ErrClosed)
				wantErr(t, err, rueidis.ErrClosing)
				var u *driver.UnavailableError
				if !errors.As(err, &u) || !u.Refused {
					t.Errorf("%#v: want Refused", err)
				}
				return time.Since(start)
			})
			start := time.Now()
			wantErr(t, l.Unlock(), redisconn.ErrClosed)
			if took, late := time.Since(start), machine.Late(); took > time.Second+late {
				t.Errorf("took %v (control %v)", took, late)
			}
		})
	}
}

// While the server does not answer, a call ends at its deadline. Later calls succeed.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			machine := drill.WatchMachine(t.Context(), server.Addr())
			proxy := redistest.NewProxy(t, server.Addr())
			locks := open(t, dial(t, proxy.Addr(), state))
			drill.Unlock(t, drill.Lock(t, locks, job))
			for range 3 {
				machine.Measure(t, "mute server, "+name+": a call with 300ms", 450*time.Millisecond, func() time.Duration {
					proxy.Freeze()
					defer proxy.Thaw()
					start := time.Now()
					_, err := locks.Mutex(job).Lock(drill.Within(t, 300*time.Millisecond))
					took := time.Since(start)
					wantErr(t, err, dibs.ErrUnavailable)
					wantErr(t, err, context.DeadlineExceeded)
					return took
				})
				drill.Unlock(t, obtain(t, locks, job))
			}
		})
	}
}

// An unresponsive connection is abandoned: leases are still renewed, and a call with time
// left retries on another connection.
func TestMuteConnection(t *testing.T) {
	t.Parallel()
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			machine := drill.WatchMachine(t.Context(), server.Addr())
			proxy := redistest.NewProxy(t, server.Addr())
			single := func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 }
			locks := open(t, dial(t, proxy.Addr(), state, single), dibs.Timeout(time.Second))
			held := drill.Lock(t, locks, "held", dibs.TTL(4*time.Second))
			machine.Measure(t, "mute connection, "+name+": entry after", 3*time.Second, func() time.Duration {
				muted := proxy.MuteNextReply(key)
				start := time.Now()
				drill.Unlock(t, drill.Lock(t, locks, job))
				<-muted
				return time.Since(start)
			})
			time.Sleep(6 * time.Second) // longer than the lease TTL
			drill.Unlock(t, held)
		})
	}
}

// Connections that break under load should cause no errors and no double holders.
func TestReset(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, start(t).Addr())
			locks := open(t, dial(t, proxy.Addr()))
			ctx, stop := context.WithCancel(t.Context())
			var group sync.WaitGroup
			var pairs, inside atomic.Int64
			for range 8 {
				group.Go(func() {
					for ctx.Err() == nil {
						l, err := locks.Mutex(job).Lock(drill.Within(t, drill.Generous))
						if err != nil {
							t.Errorf("lock: %v", err)
							return
						}
						if inside.Add(1) != 1 {
							t.Error("two hold the lock")
						}
						inside.Add(-1)
						if err := l.Unlock(); err != nil {
							t.Errorf("unlock: %v", err)
						}
						pairs.Add(1)
					}
				})
			}
			for range 10 {
				before := pairs.Load()
				drill.Eventually(t, "locking continues", func() bool { return pairs.Load() > before+20 })
				proxy.Reset()
			}
			before := pairs.Load()
			drill.Eventually(t, "locking continues", func() bool { return pairs.Load() > before+20 })
			stop()
			group.Wait()
		})
	}
}

func TestSubscriptionComesBack(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start, "cluster": redistest.StartClusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			client := dial(t, server.Addr())
			events := drill.Watch(t, rueidisstore.New(client))
			drill.WantEvent(t, events, driver.EventConnected, drill.Generous)
			for range 3 {
				server.MustCmd(t, "CLIENT", "KILL", "TYPE", "pubsub")
				drill.WantEvent(t, events, driver.EventDisconnected, drill.Generous)
				drill.WantEvent(t, events, driver.EventConnected, drill.Generous)
			}
		})
	}
}

func TestSubscriptionGoesMute(t *testing.T) {
	t.Parallel()
	for name, adjust := range map[string]func(*rueidis.ClientOption){
		"RESP3": sequential,
		"RESP2": func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			events := drill.Watch(t, rueidisstore.New(dial(t, proxy.Addr(), adjust)))
			drill.WantEvent(t, events, driver.EventConnected, drill.Generous)
			proxy.Freeze()
			drill.WantEvent(t, events, driver.EventDisconnected, drill.Generous)
			proxy.Thaw()
			drill.WantEvent(t, events, driver.EventConnected, drill.Generous)
		})
	}
}

// Watch ends with its context, even if the server does not answer.
func TestSubscriptionEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := dial(t, proxy.Addr())
	machine := drill.WatchMachine(t.Context(), server.Addr())
	for _, mute := range []bool{false, true} {
		if mute {
			proxy.Freeze()
		}
		ctx, cancel := context.WithCancel(t.Context())
		connected := make(chan struct{}, 10)
		ended := make(chan error, 1)
		go func() {
			ended <- rueidisstore.New(client).Watch(ctx, "me", nil, func(e driver.Event) { connected <- struct{}{} })
		}()
		if !mute {
			drill.Eventually(t, "it is connected", func() bool { return len(connected) > 0 })
		}
		machine.Begin()
		start := time.Now()
		cancel()
		wantErr(t, <-ended, context.Canceled)
		if took, late := time.Since(start), machine.Late(); took > 200*time.Millisecond+late {
			t.Errorf("Watch took %v to return (control %v)", took, late)
		}
	}
}

func TestNoPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	locks := open(t, client)
	drill.Unlock(t, drill.Lock(t, locks, job))
	// The user now needs a password, and all connections are closed.
	server.MustCmd(t, "ACL", "SETUSER", "default", "resetpass", ">secret")
	client.Do(t.Context(), client.B().Arbitrary("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no").Build())
	machine := drill.WatchMachine(t.Context(), server.Addr())
	drill.Eventually(t, "the call is rejected", func() bool {
		machine.Begin()
		start := time.Now()
		_, err := locks.Mutex(job).Lock(drill.Within(t, drill.Generous))
		var refusal redisconn.ServerError
		if !errors.As(err, &refusal) {
			return false
		}
		if took, late := time.Since(start), machine.Late(); took > time.Second+late {
			t.Errorf("took %v (control %v)", took, late)
		}
		return strings.HasPrefix(string(refusal), "NOAUTH")
	})
}

// A user without permission for channels can lock: its waiters poll.
func TestNoChannels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, "ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all")
	client := dial(t, server.Addr(), func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "secret" })
	var degraded atomic.Int64
	var cause atomic.Pointer[error]
	locks := open(t, client, dibs.Observe(dibs.Hooks{Degraded: func(_ context.Context, d dibs.Degraded) {
		degraded.Add(1)
		cause.Store(&d.Err)
	}}))
	holder := open(t, dial(t, server.Addr()))
	machine := drill.WatchMachine(t.Context(), server.Addr())
	for range 5 {
		l := drill.Lock(t, holder, job)
		waits := make(chan struct{})
		go func() {
			<-waits
			drill.Unlock(t, l)
		}()
		machine.Begin()
		start := time.Now()
		drill.Unlock(t, drill.Lock(t, locks, job, dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(waits) }})))
		if took, late := time.Since(start), machine.Late(); took > time.Second+late {
			t.Errorf("took %v (control %v)", took, late)
		}
	}
	drill.Eventually(t, "Degraded is called", func() bool { return degraded.Load() > 0 })
	var refusal redisconn.ServerError
	if n, err := degraded.Load(), *cause.Load(); n != 1 || !errors.As(err, &refusal) || !strings.HasPrefix(string(refusal), "NOPERM") {
		t.Errorf("Degraded was called %d times with %v, want once with NOPERM", n, err)
	}
}

func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *redistest.Server{
		"standalone": redistest.Start, "cluster": redistest.StartClusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout, longTTL = 300 * time.Millisecond, 30 * time.Second
			server := start(t)
			client := dial(t, server.Addr())
			locks := dibs.New(rueidisstore.New(client, redisstore.WithReplicas(1, timeout)), dibs.TTL(longTTL), dibs.Timeout(10*time.Second))
			defer locks.Close()
			plain := open(t, client, dibs.TTL(longTTL))
			_, err := locks.Mutex(job).TryLock(t.Context())
			wantErr(t, err, dibs.ErrUnavailable)
			var short *redisstore.ReplicasError
			if !errors.As(err, &short) || short.Have != 0 || short.Want != 1 || short.Cause != nil {
				t.Fatalf("%v, want 0 of 1 replicas", err)
			}
			l, err := plain.Mutex(job).TryLock(t.Context())
			if err != nil {
				t.Fatalf("the lock was not released: %v", err)
			}
			machine := drill.WatchMachine(t.Context(), server.Addr())
			machine.Measure(t, "too few replicas: busy after", timeout/3, func() time.Duration {
				start := time.Now()
				_, err := locks.Mutex(job).TryLock(t.Context())
				wantErr(t, err, dibs.ErrBusy)
				return time.Since(start)
			})
			drill.Unlock(t, l)
		})
	}
}
