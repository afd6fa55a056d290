package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/drill"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// ttl is the TTL to which the figures in docs/guarantees.md refer.
const ttl = 2 * time.Second

// generous bounds steps without a measured time, on a busy machine.
const generous = 30 * time.Second

// patient is a long timeout for clients whose operations the test does not measure.
func patient() dibs.Option { return dibs.Timeout(10 * time.Second) }

// job is the name for locks in tests, and key is its key in Redis.
const (
	job = "job"
	key = "lock:job"
)

// fixture is a server with test helpers.
type fixture struct {
	control
	t      *testing.T
	server *redistest.Server
	direct *redistest.Conn // to the server, not through a proxy
}

func setUp(t *testing.T, args ...string) *fixture {
	t.Helper()
	server := redistest.Start(t, args...)
	direct := redistest.Dial(server.Addr())
	t.Cleanup(direct.Close)
	return &fixture{t: t, server: server, direct: direct, control: watchMachine(t.Context(), server.Addr())}
}

// skipIfStalled skips a test if the machine stalled for so long that this alone may have lost a
// lease with this ttl.
func (b *fixture) skipIfStalled(most time.Duration) {
	b.t.Helper()
	skipIfStalled(b.t, b.late(), most)
}

func skipIfStalled(t *testing.T, late, most time.Duration) {
	t.Helper()
	if late > most {
		t.Skipf("SKIPPED: the machine stalled for %v", late)
	}
}

// control is drill.Machine with these tests' method names.
type control struct{ *drill.Machine }

func watchMachine(ctx context.Context, addr string) control {
	return control{drill.WatchMachine(ctx, addr)}
}

func (c control) begin() { c.Begin() }

func (c control) late() time.Duration { return c.Late() }

// within checks a measured duration against its limit.
func (b *fixture) within(what string, have, limit time.Duration) {
	b.t.Helper()
	within(b.t, what, have, limit, b.late())
}

func within(t *testing.T, what string, have, limit, late time.Duration) {
	t.Helper()
	t.Logf("FIGURE %-46s %10v   limit %v   control %v", what, round(have), limit, round(late))
	if have > limit+late {
		skipIfStalled(t, late, ttl/4)
		t.Errorf("%s: %v, want at most %v (plus %v for the busy machine)", what, have, limit, round(late))
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// newClient returns a connected and subscribed client.
func (b *fixture) newClient(addr string, options ...dibs.Option) *dibs.Client {
	b.t.Helper()
	return b.warmClient(goredisstore.New(dial(b.t, &redis.Options{Addr: addr})), options...)
}

// warmClient is newClient for a store.
func (b *fixture) warmClient(store driver.Store, options ...dibs.Option) *dibs.Client {
	b.t.Helper()
	c := dibs.New(store, append([]dibs.Option{dibs.TTL(ttl)}, options...)...)
	b.t.Cleanup(func() { c.Close() })
	token, err := warm(deadline(b.t, generous), c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.awaitSubscription(token)
	return c
}

// warm locks and unlocks a name, and retries while the store is unavailable: on a busy machine the
// first connection may take long. It returns the lease's token.
func warm(ctx context.Context, c *dibs.Client) (token string, err error) {
	for {
		var l *dibs.Lease
		if l, err = c.Mutex("warm").Lock(ctx); err == nil {
			token, err = string(l.Token()), l.Unlock()
		}
		if !errors.Is(err, dibs.ErrUnavailable) || ctx.Err() != nil {
			return token, err
		}
	}
}

// awaitSubscription waits until a token's client is subscribed on the server.
func (b *fixture) awaitSubscription(token string) {
	b.t.Helper()
	b.eventually("the client has its subscription", func() bool {
		list, _ := b.call("PUBSUB", "NUMSUB", channelOf(token)).([]any)
		return len(list) == 2 && list[1] == int64(1)
	})
}

// channelOf returns the channel for a token's client (docs/spec.md).
func channelOf(token string) string {
	parts := strings.SplitN(token, ":", 4)
	return "dibs:c:" + strings.Join(parts[:3], ":")
}

func (b *fixture) call(args ...string) any {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), generous)
	defer cancel()
	value, err := b.direct.Call(ctx, args...)
	if err != nil {
		b.t.Fatalf("%q: %v", args, err)
	}
	return value
}

func (b *fixture) lock(c *dibs.Client, name string, options ...dibs.Option) *dibs.Lease {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), generous)
	defer cancel()
	l, err := c.Mutex(name).Lock(ctx, options...)
	if err != nil {
		b.skipIfStalled(ttl / 4)
		b.t.Fatalf("lock %q: %v", name, err)
	}
	return l
}

func (b *fixture) unlock(l *dibs.Lease) {
	b.t.Helper()
	if err := l.Unlock(); err != nil {
		b.skipIfStalled(ttl / 4)
		b.t.Fatalf("unlock %q: %v", l.Name(), err)
	}
}

// entry is the result from a Lock in the background.
type entry struct {
	lease *dibs.Lease
	err   error
	at    time.Time
}

// enqueue locks the job in the background, and returns when this call is in the wait queue. If then
// is not nil, it is called first when Lock returns.
func (b *fixture) enqueue(c *dibs.Client, then func()) <-chan entry {
	b.t.Helper()
	waits := make(chan struct{})
	entered := make(chan entry, 1)
	ctx, cancel := context.WithTimeout(b.t.Context(), generous)
	go func() {
		defer cancel()
		hooks := dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(waits) }}
		l, err := c.Mutex(job).Lock(ctx, dibs.Observe(hooks))
		e := entry{l, err, time.Now()}
		if then != nil {
			then()
		}
		entered <- e
	}()
	select {
	case <-waits:
	case e := <-entered:
		b.t.Fatalf("Lock does not wait: %+v", e)
	}
	return entered
}

// awaitEntry waits for a Lock in the background, which must succeed.
func (b *fixture) awaitEntry(entered <-chan entry) entry {
	b.t.Helper()
	e := <-entered
	if e.err != nil {
		b.t.Fatalf("lock in the background: %v", e.err)
	}
	return e
}

// awaitFree tries until the job can be locked, and returns the time. It unlocks the job.
func (b *fixture) awaitFree(c *dibs.Client) time.Time {
	b.t.Helper()
	var at time.Time
	b.eventually("the name is free", func() bool {
		l, err := c.Mutex(job).TryLock(b.t.Context())
		if err != nil {
			b.wantErr(err, dibs.ErrBusy)
			return false
		}
		at = time.Now()
		b.unlock(l)
		return true
	})
	return at
}

func (b *fixture) wantErr(err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) {
		b.t.Fatalf("have error %v, want %v", err, want)
	}
}

// eventually polls every millisecond until a condition holds.
func (b *fixture) eventually(what string, holds func() bool) {
	b.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(generous); !holds(); <-tick.C {
		if time.Now().After(end) {
			b.t.Fatalf("timed out waiting until %s", what)
		}
	}
}

func (b *fixture) await(what string, done <-chan struct{}) {
	b.t.Helper()
	select {
	case <-done:
	case <-time.After(generous):
		b.t.Fatalf("timed out waiting until %s", what)
	}
}

// wantNoKeys checks that the fence high-water marks are the only keys in Redis.
func (b *fixture) wantNoKeys() {
	b.t.Helper()
	if left := b.remainingKeys(); len(left) > 0 {
		b.t.Errorf("keys left: %q", left)
	}
}

func (b *fixture) remainingKeys() []string {
	b.t.Helper()
	var left []string
	keys, _ := b.server.MustCmd(b.t, "KEYS", "*").([]any)
	for _, k := range keys {
		if name := fmt.Sprint(k); !strings.HasPrefix(name, "dibs:fence:") {
			left = append(left, name)
		}
	}
	return left
}

// deadline returns a context that ends after d.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func (b *fixture) proxy() *redistest.Proxy {
	b.t.Helper()
	return redistest.NewProxy(b.t, b.server.Addr())
}

const rounds = 5

// If an acquire's reply is lost with its connection, its outcome is unknown. The client should
// retry with the same token.
func TestAcquireReplyReset(t *testing.T) {
	b := setUp(t)
	proxy := b.proxy()
	locks := b.newClient(proxy.Addr())
	for range rounds { // not parallel, because a few ms matter
		b.begin()
		cut := proxy.CutNextReply(key)
		start := time.Now()
		l := b.lock(locks, job)
		took := time.Since(start)
		b.await("the reply is cut", cut)
		b.within("acquire reply reset: entry", took, 50*time.Millisecond)
		b.unlock(l)
		b.wantNoKeys()
	}
}

// A waiter whose reply is lost keeps its queue entry.
func TestQueueReplyReset(t *testing.T) {
	b := setUp(t)
	proxy := b.proxy()
	holder, locks := b.newClient(b.server.Addr()), b.newClient(proxy.Addr())
	for range rounds {
		l := b.lock(holder, job)
		cut := proxy.CutNextReply(key)
		waiter := b.enqueue(locks, nil)
		b.await("the reply is cut", cut)
		if n := b.call("ZCARD", "{"+key+"}:dibs:queue"); n != int64(1) {
			t.Fatalf("%v entries in the queue, want one", n)
		}
		b.begin()
		released := time.Now()
		b.unlock(l)
		e := b.awaitEntry(waiter)
		b.within("queue reply reset: entry after release", e.at.Sub(released), 50*time.Millisecond)
		b.unlock(e.lease)
		b.wantNoKeys()
	}
}

// A call on a connection that becomes unresponsive ends at its deadline and leaves nothing
// behind.
func TestAcquireReplyMute(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	locks, rival := b.newClient(proxy.Addr()), b.newClient(b.server.Addr())
	for range 3 {
		b.begin()
		muted := proxy.MuteNextReply(key)
		start := time.Now()
		l, err := locks.Mutex(job).Lock(deadline(t, 500*time.Millisecond))
		returned := time.Now()
		b.await("the reply is dropped", muted)
		b.within("acquire reply mute: call with 500ms", returned.Sub(start), 550*time.Millisecond)
		if err == nil { // the retry succeeded just in time
			b.unlock(l)
			proxy.Thaw()
			continue
		}
		b.wantErr(err, dibs.ErrUnavailable)
		b.wantErr(err, context.DeadlineExceeded)
		b.within("acquire reply mute: free after", b.awaitFree(rival).Sub(returned), 600*time.Millisecond)
		proxy.Thaw()
	}
	b.eventually("no keys are left", func() bool { return len(b.remainingKeys()) == 0 })
}

// A call with more time retries on another connection, within the operation timeout.
func TestAcquireReplyMuteSecondTry(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	locks := b.newClient(proxy.Addr())
	for range 3 {
		b.begin()
		muted := proxy.MuteNextReply(key)
		ctx := deadline(t, 10*time.Second)
		start := time.Now()
		l, err := locks.Mutex(job).Lock(ctx)
		took := time.Since(start)
		b.await("the reply is dropped", muted)
		if err != nil {
			b.skipIfStalled(ttl / 4)
			t.Fatal(err)
		}
		b.within("acquire reply mute: entry by the retry", took, time.Second)
		b.unlock(l)
		b.wantNoKeys()
		proxy.Thaw()
	}
}

// An Unlock whose reply is lost retries, and returns nil although the second reply is
// "not held".
func TestReleaseReplyReset(t *testing.T) {
	b := setUp(t)
	proxy := b.proxy()
	locks, rival := b.newClient(proxy.Addr()), b.newClient(b.server.Addr())
	for i := range 2 * rounds {
		l := b.lock(locks, job)
		var waiter <-chan entry
		if i%2 == 1 {
			waiter = b.enqueue(rival, nil)
		}
		b.begin()
		cut := proxy.CutNextReply(key)
		start := time.Now()
		if err := l.Unlock(); err != nil {
			t.Fatalf("unlock: %v, want nil", err)
		}
		took := time.Since(start)
		b.await("the reply is cut", cut)
		b.within("release reply reset: Unlock", took, time.Second)
		if waiter == nil {
			b.within("release reply reset: free after", b.awaitFree(rival).Sub(start), 50*time.Millisecond)
		} else {
			e := b.awaitEntry(waiter)
			b.within("release reply reset: waiter enters after", e.at.Sub(start), 50*time.Millisecond)
			b.unlock(e.lease)
		}
		b.wantNoKeys()
	}
}

// An Unlock that is cut off returns an error within its time budget, and retries in the
// background. The TTL of 20 s is long enough not to matter.
func TestReleaseRequestLost(t *testing.T) {
	t.Parallel()
	for _, cut := range []struct {
		name string
		off  func(*redistest.Proxy)
	}{
		{"freeze", func(p *redistest.Proxy) {
			p.LoseNextRequest(key) // the later ones arrive after Thaw
			p.Freeze()
		}},
		{"drop", (*redistest.Proxy).Drop},
	} {
		t.Run(cut.name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			proxy := b.proxy()
			locks, rival := b.newClient(proxy.Addr(), dibs.TTL(20*time.Second)), b.newClient(b.server.Addr())
			for range 2 {
				l := b.lock(locks, job)
				b.begin()
				cut.off(proxy)
				start := time.Now()
				err := l.Unlock()
				b.within("release request lost: Unlock", time.Since(start), 1050*time.Millisecond)
				b.wantErr(err, dibs.ErrUnavailable)
				var u *dibs.UnavailableError
				if !errors.As(err, &u) || !u.Unknown {
					t.Fatalf("unlock: %v, want an error with an unknown outcome", err)
				}
				if b.call("GET", key) == nil {
					t.Fatal("the name is free before the network heals, so the request was not lost")
				}
				healed := time.Now()
				proxy.Thaw()
				b.within("release request lost: free after heal", b.awaitFree(rival).Sub(healed), 600*time.Millisecond)
			}
		})
	}
}

// A waiter that loses all its connections before, during or after the hand-off should still get the
// lock.
func TestWaiterReset(t *testing.T) {
	b := setUp(t)
	proxy := b.proxy()
	holder, locks := b.newClient(b.server.Addr()), b.newClient(proxy.Addr())
	w := b.lock(locks, "token")
	token := w.Token()
	b.unlock(w)
	for _, round := range []struct {
		name string
		do   func(l *dibs.Lease) time.Time // returns when it was released
	}{
		{"then release", func(l *dibs.Lease) time.Time {
			proxy.Reset()
			released := time.Now()
			b.unlock(l)
			return released
		}},
		{"release once it has connected again", func(l *dibs.Lease) time.Time {
			before := proxy.Stats().Accepted
			proxy.Reset()
			b.eventually("the waiter connects again", func() bool { return proxy.Stats().Accepted > before })
			released := time.Now()
			b.unlock(l)
			return released
		}},
		{"release at the same time", func(l *dibs.Lease) time.Time {
			go proxy.Reset()
			released := time.Now()
			b.unlock(l)
			return released
		}},
		{"after the release", func(l *dibs.Lease) time.Time {
			released := time.Now()
			b.unlock(l)
			proxy.Reset()
			return released
		}},
	} {
		for range 3 {
			l := b.lock(holder, job)
			waiter := b.enqueue(locks, nil)
			b.awaitSubscription(string(token)) // again, and soon, because it waits
			b.begin()
			released := round.do(l)
			e := b.awaitEntry(waiter)
			b.within("waiter reset, "+round.name, e.at.Sub(released), 100*time.Millisecond)
			b.unlock(e.lease)
		}
	}
	b.wantNoKeys()
}

// A holder that is cut off is notified before another client can acquire the name.
func TestPartition(t *testing.T) {
	t.Parallel()
	const lasts = 5 * time.Second
	for _, cut := range []struct {
		name string
		off  func(*redistest.Proxy)
	}{
		{"freeze", (*redistest.Proxy).Freeze},
		{"drop", (*redistest.Proxy).Drop},
	} {
		for _, when := range []struct {
			name    string
			renewed bool
			work    time.Duration
		}{
			{"at once", false, 0},
			{"after a renewal", true, 0},
			{"between two renewals", true, ttl / 6},
		} {
			t.Run(cut.name+" "+when.name, func(t *testing.T) {
				t.Parallel()
				b := setUp(t)
				proxy := b.proxy()
				renewed := make(chan struct{}, 100)
				holder, rival := b.newClient(proxy.Addr(), renewals(renewed)), b.newClient(b.server.Addr())
				l := b.lock(holder, job)
				notified := make(chan time.Time, 1)
				go func() {
					<-l.Context().Done()
					notified <- time.Now()
				}()
				var then error
				waiter := b.enqueue(rival, func() { then = l.Err() })
				if when.renewed {
					select {
					case <-renewed:
					case <-notified:
						b.skipIfStalled(ttl / 4)
						t.Fatalf("lost before the partition: %v", l.Err())
					}
				}
				time.Sleep(when.work)
				b.begin()
				start := time.Now()
				cut.off(proxy)
				healed := time.AfterFunc(lasts, proxy.Thaw)
				defer healed.Stop()
				e := b.awaitEntry(waiter)
				at := <-notified
				ahead := e.at.Sub(at)
				t.Logf("FIGURE partition: holder notified after %v, rival enters after %v: %v later (limit 20ms, control %v)",
					round(at.Sub(start)), round(e.at.Sub(start)), round(ahead), round(b.late()))
				b.wantErr(then, dibs.ErrLost) // when the rival entered
				if ahead < 20*time.Millisecond-b.late() {
					t.Errorf("notified %v before the rival entered, want 20ms (control %v)", ahead, b.late())
				}
				b.wantErr(context.Cause(l.Context()), dibs.ErrLost)
				b.wantErr(l.Unlock(), dibs.ErrLost)
				if e.lease.Fence() <= l.Fence() {
					t.Errorf("the rival's fence %d is not above %d", e.lease.Fence(), l.Fence())
				}
				// Delayed requests arrive now, and must not affect the rival.
				b.eventually("the network has healed", func() bool { return time.Since(start) > lasts })
				late, err := holder.Mutex(job).TryLock(t.Context())
				if err == nil {
					t.Fatalf("acquired %+v although the rival holds the lock", late)
				}
				b.unlock(e.lease)
				b.wantNoKeys()
			})
		}
	}
}

// renewals signals each renewed batch.
func renewals(renewed chan<- struct{}) dibs.Option {
	return dibs.Observe(dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) {
		select {
		case renewed <- struct{}{}:
		default:
		}
	}})
}

// An acquire delivered after its caller returned must not acquire the name, or only for a short
// time.
func TestLateAcquire(t *testing.T) {
	t.Parallel()
	for _, late := range []struct {
		name     string
		ctx      func(t *testing.T) context.Context
		deliver  time.Duration // after the start
		heldFor  time.Duration // limit for how long the name is held
		explains error
	}{
		{"2s, ctx 500ms", func(t *testing.T) context.Context { return deadline(t, 500*time.Millisecond) },
			2 * time.Second, 50 * time.Millisecond, context.DeadlineExceeded},
		{"300ms, cancelled at 100ms", func(t *testing.T) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			return ctx
		}, 300 * time.Millisecond, 600 * time.Millisecond, context.Canceled},
	} {
		t.Run(late.name, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				b := setUp(t)
				proxy := b.proxy()
				locks, rival := b.newClient(proxy.Addr(), dibs.TTL(20*time.Second)), b.newClient(b.server.Addr())
				held, release := proxy.HoldNextRequest(key)
				frozen := make(chan struct{})
				go func() { // else the call would succeed on another connection
					defer close(frozen)
					<-held
					proxy.Freeze()
				}()
				ctx := late.ctx(t)
				start := time.Now()
				l, err := locks.Mutex(job).Lock(ctx)
				if err == nil {
					t.Fatalf("acquired: %+v", l)
				}
				b.wantErr(err, late.explains)
				b.await("the request is held", held)
				b.await("the proxy is frozen", frozen)
				proxy.Thaw()
				b.begin()
				b.eventually("the time of delivery has come", func() bool { return time.Since(start) >= late.deliver })
				if v := b.call("GET", key); v != nil {
					t.Fatalf("held by %v before the request is delivered", v)
				}
				release()
				delivered := time.Now()
				var last time.Duration // when it was last seen held
				for time.Since(delivered) < time.Second {
					if b.call("GET", key) != nil {
						last = time.Since(delivered)
					}
				}
				b.within("late acquire, "+late.name+": held for", last, late.heldFor)
				b.awaitFree(rival)
				b.wantNoKeys()
			}
		})
	}
}

// A Redis that restarts without its data loses the lease. The holder is notified.
func TestRestartEmpty(t *testing.T) {
	t.Parallel()
	for range 3 {
		b := setUp(t)
		locks := b.newClient(b.server.Addr(), dibs.TTL(20*time.Second)) // long enough not to expire
		l := b.lock(locks, job)
		notified := make(chan time.Time, 1)
		go func() {
			<-l.Context().Done()
			notified <- time.Now()
		}()
		b.server.Kill()
		answers := b.answers()
		b.begin()
		if err := b.server.Restart(); err != nil {
			t.Fatal(err)
		}
		back := <-answers
		b.within("restart empty: notified after it answers", (<-notified).Sub(back), 100*time.Millisecond)
		var lost *dibs.LostError
		if err := l.Err(); !errors.As(err, &lost) || lost.Reason != dibs.ReasonMissing {
			t.Fatalf("%v, want a LostError with ReasonMissing", err)
		}
		b.wantErr(l.Unlock(), dibs.ErrLost)
	}
}

// answers sends the time when the server first answers.
func (b *fixture) answers() <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		conn := redistest.Dial(b.server.Addr())
		defer conn.Close()
		for b.t.Context().Err() == nil {
			ctx, cancel := context.WithTimeout(b.t.Context(), 100*time.Millisecond)
			_, err := conn.Call(ctx, "PING")
			cancel()
			if err == nil {
				at <- time.Now()
				return
			}
			time.Sleep(time.Millisecond) // between tries
		}
	}()
	return at
}

// A Redis that persists each write before its reply loses neither the lease nor the queue.
func TestRestartAOF(t *testing.T) {
	t.Parallel()
	b := setUp(t, "--appendonly", "yes", "--appendfsync", "always")
	renewed := make(chan struct{}, 100)
	locks := b.newClient(b.server.Addr(), dibs.TTL(10*time.Second), renewals(renewed))
	rival := b.newClient(b.server.Addr(), dibs.TTL(10*time.Second))
	var fence uint64
	for range 3 {
		l := b.lock(locks, job)
		if l.Fence() <= fence {
			t.Errorf("fence %d after %d", l.Fence(), fence)
		}
		waiter := b.enqueue(rival, nil)
		for len(renewed) > 0 {
			<-renewed
		}
		b.server.Kill()
		if err := b.server.Restart(); err != nil {
			t.Fatal(err)
		}
		b.begin()
		<-renewed
		if err := l.Err(); err != nil {
			t.Fatalf("lost: %v", err)
		}
		released := time.Now()
		b.unlock(l)
		e := b.awaitEntry(waiter)
		// The waiter may not have its subscription yet: go-redis pauses for 100 ms between
		// its own tries to connect, and dibs for 50 ms between connections.
		b.within("restart with AOF: waiter enters after release", e.at.Sub(released), 250*time.Millisecond)
		if e.lease.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", e.lease.Fence(), l.Fence())
		}
		fence = e.lease.Fence()
		b.unlock(e.lease)
	}
	b.wantNoKeys()
}

// forgetMixed deletes the metadata about a foreign client that held the name. They would expire.
func (b *fixture) forgetMixed() {
	b.t.Helper()
	meta := "{" + key + "}:dibs:meta"
	if ms := b.call("PTTL", meta); ms == int64(-1) {
		b.t.Error("the metadata never expire")
	}
	b.call("DEL", meta)
}

// dibs waits for foreign locks: other libraries do not serve its queue.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/unlock.lua")
	if err != nil {
		t.Fatal(err)
	}
	unlock := string(script)
	t.Run("released", func(t *testing.T) {
		t.Parallel()
		for _, d := range []time.Duration{ttl, 30 * time.Second} { // with a longer TTL the waiter polls less often
			b := setUp(t)
			locks := b.newClient(b.server.Addr(), dibs.TTL(d))
			b.call("SET", key, "theirs", "NX", "PX", "20000")
			waiter := b.enqueue(locks, nil)
			b.begin()
			released := time.Now()
			if b.call("EVAL", unlock, "1", key, "theirs") != int64(1) {
				t.Fatal("the foreign unlock returned 0")
			}
			e := b.awaitEntry(waiter)
			b.within(fmt.Sprintf("foreign release, TTL %v: entry after", d), e.at.Sub(released), 2600*time.Millisecond)
			b.unlock(e.lease)
			b.forgetMixed()
			b.wantNoKeys()
		}
	})
	t.Run("expired", func(t *testing.T) {
		t.Parallel()
		b := setUp(t)
		locks := b.newClient(b.server.Addr())
		for _, ms := range []string{"300", "1400", "3300"} {
			life, _ := time.ParseDuration(ms + "ms")
			earliest := time.Now().Add(life)
			b.call("SET", key, "theirs", "NX", "PX", ms)
			latest := time.Now().Add(life)
			b.begin()
			e := b.awaitEntry(b.enqueue(locks, nil))
			b.within("foreign expiry after "+ms+"ms: entry after", e.at.Sub(latest), 50*time.Millisecond)
			if e.at.Before(earliest.Add(-5 * time.Millisecond)) { // the server counts whole milliseconds
				t.Errorf("entered %v before it expired", earliest.Sub(e.at))
			}
			b.unlock(e.lease)
			b.forgetMixed()
			b.wantNoKeys()
		}
	})
	t.Run("excluded", func(t *testing.T) {
		t.Parallel()
		b := setUp(t)
		locks := b.newClient(b.server.Addr())
		l := b.lock(locks, job, dibs.OwnerToken("worker-1")) // its value has nothing else, so other libraries can compare it
		if v := b.call("SET", key, "theirs", "NX", "PX", "1000"); v != nil {
			t.Fatalf("SET NX on a held name: %v", v)
		}
		if v := b.call("EVAL", unlock, "1", key, "theirs"); v != int64(0) {
			t.Fatalf("a foreign unlock with a wrong token: %v", v)
		}
		if v := b.call("EVAL", unlock, "1", key, string(l.Token())); v != int64(1) {
			t.Fatalf("a foreign unlock with the token: %v", v)
		}
		if v := b.call("SET", key, "theirs", "NX", "PX", "1000"); v != "OK" {
			t.Fatalf("SET NX on a free name: %v", v)
		}
		b.await("the holder is notified", l.Context().Done())
		b.wantErr(l.Unlock(), dibs.ErrLost)
		if v := b.call("GET", key); v != "theirs" && v != nil { // or expired
			t.Fatalf("held by %v", v)
		}
	})
}
