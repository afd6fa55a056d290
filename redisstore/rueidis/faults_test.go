package rueidis_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/drill"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
	dibsrueidis "github.com/dibslock/dibs/redisstore/rueidis"
	"github.com/redis/rueidis"
)

func mustBe(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("have error %v, want %v", err, want)
	}
}

// pipelining keeps the connections in the state that they have under load.
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
			client := dial(t, start(t).Addr())
			locks := open(t, client)
			l := drill.Lock(t, locks, job)
			client.Close()
			drill.Eventually(t, "all connections are closed", func() bool { // one after another
				for range 10 {
					l, err := locks.Mutex("other").TryLock(t.Context())
					if err == nil {
						_ = l.Unlock() // it may be closed by now
					}
					if !errors.Is(err, redisstore.ErrClosed) {
						return false
					}
				}
				return true
			})
			start := time.Now()
			_, err := locks.Mutex("other").Lock(t.Context())
			mustBe(t, err, dibs.ErrUnavailable)
			mustBe(t, err, redisstore.ErrClosed)
			mustBe(t, err, rueidis.ErrClosing)
			var u *dibs.UnavailableError
			if !errors.As(err, &u) || !u.Refused {
				t.Errorf("%#v: want it refused", err)
			}
			mustBe(t, l.Unlock(), redisstore.ErrClosed)
			if took := time.Since(start); took > time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// Nobody waits longer than the call says, and the next calls are served.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			locks := open(t, dial(t, proxy.Addr(), state))
			drill.Unlock(t, drill.Lock(t, locks, job))
			for range 3 {
				proxy.Freeze()
				start := time.Now()
				_, err := locks.Mutex(job).Lock(drill.Within(t, 300*time.Millisecond))
				if took := time.Since(start); took > 450*time.Millisecond {
					t.Errorf("a call with 300ms took %v", took)
				}
				mustBe(t, err, dibs.ErrUnavailable)
				mustBe(t, err, context.DeadlineExceeded)
				proxy.Thaw()
				drill.Unlock(t, drill.Lock(t, locks, job))
			}
		})
	}
}

// A connection that has gone mute for ever is left, so that leases go on and a call that
// has more time takes another one.
func TestMuteConnection(t *testing.T) {
	t.Parallel()
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			single := func(o *rueidis.ClientOption) { o.PipelineMultiplex = -1 }
			locks := open(t, dial(t, proxy.Addr(), state, single))
			held := drill.Lock(t, locks, "held", dibs.TTL(4*time.Second))
			muted := proxy.MuteNextReply(key)
			start := time.Now()
			drill.Unlock(t, drill.Lock(t, locks, job))
			<-muted
			t.Logf("FIGURE mute connection: entry after %v", time.Since(start))
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			time.Sleep(6 * time.Second) // until the lease would have ended
			drill.Unlock(t, held)
		})
	}
}

// Connections that break under load lose nothing.
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
							t.Error("two are inside")
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
				drill.Eventually(t, "it goes on", func() bool { return pairs.Load() > before+20 })
				proxy.Reset()
			}
			before := pairs.Load()
			drill.Eventually(t, "it goes on", func() bool { return pairs.Load() > before+20 })
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
			events := drill.Watch(t, dibsrueidis.New(client))
			drill.WantEvent(t, events, dibs.Up, drill.Generous)
			for range 3 {
				server.MustCmd(t, "CLIENT", "KILL", "TYPE", "pubsub")
				drill.WantEvent(t, events, dibs.Down, time.Second)
				drill.WantEvent(t, events, dibs.Up, time.Second)
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
			events := drill.Watch(t, dibsrueidis.New(dial(t, proxy.Addr(), adjust)))
			drill.WantEvent(t, events, dibs.Up, drill.Generous)
			proxy.Freeze()
			drill.WantEvent(t, events, dibs.Down, 5*time.Second)
			proxy.Thaw()
			drill.WantEvent(t, events, dibs.Up, drill.Generous)
		})
	}
}

// Watch ends with its context also where nobody answers.
func TestSubscriptionEnds(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	client := dial(t, proxy.Addr())
	for _, mute := range []bool{false, true} {
		if mute {
			proxy.Freeze()
		}
		ctx, cancel := context.WithCancel(t.Context())
		up := make(chan struct{}, 10)
		ended := make(chan error, 1)
		go func() {
			ended <- dibsrueidis.New(client).Watch(ctx, "me", func(e dibs.Event) { up <- struct{}{} })
		}()
		if !mute {
			<-up
		}
		start := time.Now()
		cancel()
		mustBe(t, <-ended, context.Canceled)
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("it took %v to leave", took)
		}
	}
}

func TestNoPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := dial(t, server.Addr())
	locks := open(t, client)
	drill.Unlock(t, drill.Lock(t, locks, job))
	// No user has a right or a password any more, and all connections are closed.
	server.MustCmd(t, "ACL", "SETUSER", "default", "resetpass", ">secret")
	client.Do(t.Context(), client.B().Arbitrary("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no").Build())
	drill.Eventually(t, "it is refused", func() bool {
		start := time.Now()
		_, err := locks.Mutex(job).Lock(drill.Within(t, drill.Generous))
		var refusal redisstore.ServerError
		if !errors.As(err, &refusal) {
			return false
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		return strings.HasPrefix(string(refusal), "NOAUTH")
	})
}

// A user who may not use channels locks all the same: its waiters ask.
func TestNoChannels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.MustCmd(t, "ACL", "SETUSER", "app", "on", ">secret", "~*", "resetchannels", "+@all")
	client := dial(t, server.Addr(), func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "secret" })
	var degraded atomic.Int64
	var why atomic.Pointer[error]
	locks := open(t, client, dibs.Observe(dibs.Hooks{Degraded: func(d dibs.Degraded) {
		degraded.Add(1)
		why.Store(&d.Err)
	}}))
	holder := open(t, dial(t, server.Addr()))
	for range 5 {
		l := drill.Lock(t, holder, job)
		waits := make(chan struct{})
		go func() {
			<-waits
			drill.Unlock(t, l)
		}()
		start := time.Now()
		drill.Unlock(t, drill.Lock(t, locks, job, dibs.Observe(dibs.Hooks{Waiting: func(dibs.Waiting) { close(waits) }})))
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	}
	drill.Eventually(t, "it is told", func() bool { return degraded.Load() > 0 })
	var refusal redisstore.ServerError
	if n, err := degraded.Load(), *why.Load(); n != 1 || !errors.As(err, &refusal) || !strings.HasPrefix(string(refusal), "NOPERM") {
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
			const timeout = 300 * time.Millisecond
			server := start(t)
			client := dial(t, server.Addr())
			locks := dibs.New(dibsrueidis.New(client, dibsrueidis.WithReplicas(1, timeout)), dibs.TTL(ttl))
			defer locks.Close()
			plain := open(t, client)
			_, err := locks.Mutex(job).TryLock(t.Context())
			mustBe(t, err, dibs.ErrUnavailable)
			var short *redisstore.ReplicasError
			if !errors.As(err, &short) || short.Have != 0 || short.Want != 1 || short.Cause != nil {
				t.Fatalf("%v, want 0 of 1 replicas", err)
			}
			l, err := plain.Mutex(job).TryLock(t.Context())
			if err != nil {
				t.Fatalf("it was not given back: %v", err)
			}
			start := time.Now()
			_, err = locks.Mutex(job).TryLock(t.Context())
			mustBe(t, err, dibs.ErrBusy)
			if took := time.Since(start); took > timeout/3 {
				t.Errorf("to learn that it is taken took %v", took)
			}
			drill.Unlock(t, l)
		})
	}
}
