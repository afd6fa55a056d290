//go:build linux

package goredisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// Network faults during operations that a mutex does not have.

// holding checks that a lease is not lost, and that the server stores it with the same weight and
// fence.
func (b *fixture) holding(observer *dibs.Client, l *dibs.Lease, weight int) {
	b.t.Helper()
	if err := l.Err(); err != nil {
		b.skipIfStalled(ttl / 4)
		b.t.Fatalf("the lease: %v", err)
	}
	s := b.inspect(observer, l.Name())
	exclusive := weight == 0
	if s.Holding != 1 || s.Holders[0].Token != l.Token() || s.Holders[0].Exclusive != exclusive ||
		!exclusive && s.Holders[0].Weight != weight || s.Holders[0].Remaining <= 0 {
		b.t.Errorf("%+v, want the holder %s with weight %d", s, l.Token(), weight)
	}
	if have := s.Holders[0].Fence; s.Fence < l.Fence() || have != l.Fence() && (have != 0 || weight != 0) {
		b.t.Errorf("%+v, want fence %d", s, l.Fence())
	}
}

// A resize whose reply is lost with its connection is retried.
func TestResizeReplyReset(t *testing.T) {
	b := setUp(t)
	proxy := b.proxy()
	locks, observer := b.newClient(proxy.Addr(), dibs.TTL(20*time.Second)), b.newClient(b.server.Addr())
	b.warm(observer)
	for range 3 { // each upgrade waits until the late attempt of the downgrade is void
		l := b.acquire(locks, "write job")
		reader := b.enqueueFor(observer, "read job")
		written := l.Fence()
		b.begin()
		cut := proxy.CutNextReply(key)
		start := time.Now()
		if err := l.Downgrade(t.Context()); err != nil {
			t.Fatalf("downgrade: %v", err)
		}
		took := time.Since(start)
		b.await("the reply is cut", cut)
		b.within("downgrade reply reset: done after", took, 50*time.Millisecond)
		e := b.awaitEntry(reader)
		b.within("downgrade reply reset: the reader behind it enters after", e.at.Sub(start), 50*time.Millisecond)
		if l.Fence() <= written {
			t.Errorf("fence %d after %d", l.Fence(), written)
		}
		if s := b.inspect(observer, job); s.Holding != 2 || s.Holders[0].Weight != 1 || s.Holders[1].Weight != 1 {
			t.Errorf("%+v, want two readers", s)
		}

		// There is another reader, so the upgrade fails with a known outcome, and the lease
		// stays shared.
		cut = proxy.CutNextReply(key)
		b.wantErr(l.TryUpgrade(t.Context()), dibs.ErrBusy)
		b.await("the reply is cut", cut)
		b.unlock(e.lease)
		b.holding(observer, l, 1)

		read := l.Fence()
		b.begin()
		cut = proxy.CutNextReply(key)
		start = time.Now()
		if err := l.TryUpgrade(t.Context()); err != nil {
			t.Fatalf("upgrade: %v", err)
		}
		took = time.Since(start)
		b.await("the reply is cut", cut)
		b.within("upgrade reply reset: done after", took, 50*time.Millisecond)
		if l.Fence() <= read {
			t.Errorf("fence %d after %d", l.Fence(), read)
		}
		b.holding(observer, l, 0)
		if _, err := observer.RWMutex(job).Reader().TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("read lock while the writer holds: %v, want ErrBusy", err)
		}
		b.unlock(l)
		b.wantNoKeys()
	}
}

// A resize whose reply never arrives is retried on another connection.
func TestResizeReplyMute(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	const timeout = 4 * time.Second // half of it is for the first try
	locks, observer := b.newClient(proxy.Addr(), dibs.TTL(20*time.Second), dibs.Timeout(timeout)), b.newClient(b.server.Addr(), patient())
	b.warm(observer)
	for range 2 {
		l := b.acquire(locks, "write job")
		for _, change := range []struct {
			name   string
			do     func(*dibs.Lease, context.Context) error
			weight int
		}{{"downgrade", (*dibs.Lease).Downgrade, 1}, {"upgrade", (*dibs.Lease).TryUpgrade, 0}} {
			b.begin()
			muted := proxy.MuteNextReply(key)
			start := time.Now()
			err := change.do(l, t.Context())
			took := time.Since(start)
			b.await("the reply is dropped", muted)
			if err != nil {
				b.skipIfStalled(ttl / 4)
				t.Fatalf("%s: %v", change.name, err)
			}
			b.within(change.name+" reply mute: done by the retry", took, timeout)
			b.holding(observer, l, change.weight)
			proxy.Thaw()
		}
		b.unlock(l)
		b.wantNoKeys()
	}
}

// A resize that does not reach the server must fail within its time budget. When it arrives
// later, it must not change the lease.
func TestResizeRequestLate(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	const longTTL = 20 * time.Second
	locks, observer := b.newClient(proxy.Addr(), dibs.TTL(longTTL)), b.newClient(b.server.Addr())
	b.warm(observer)
	for _, change := range []struct {
		name, take string
		do, back   func(*dibs.Lease, context.Context) error
		is, then   int // weights
	}{
		{"upgrade", "read job", (*dibs.Lease).TryUpgrade, (*dibs.Lease).Downgrade, 1, 1},
		{"downgrade", "write job", (*dibs.Lease).Downgrade, (*dibs.Lease).Downgrade, 0, 1},
	} {
		l := b.acquire(locks, change.take)
		fence := l.Fence()
		b.begin()
		proxy.Freeze()
		start := time.Now()
		err := change.do(l, t.Context())
		b.within(change.name+" while frozen: fails after", time.Since(start), 1050*time.Millisecond)
		b.wantErr(err, dibs.ErrUnavailable)
		if l.Err() != nil || l.Fence() != fence {
			t.Errorf("%s: %v, fence %d: want the lease unchanged, with fence %d", change.name, l.Err(), l.Fence(), fence)
		}
		proxy.Thaw() // the requests arrive now, too late
		b.eventually("the lease is renewed again", func() bool { return l.Extend(t.Context(), longTTL) == nil })
		b.holding(observer, l, change.is)
		if err := change.back(l, t.Context()); err != nil { // later resizes work
			t.Fatalf("%s: resize again: %v", change.name, err)
		}
		b.holding(observer, l, change.then)
		b.unlock(l)
		b.wantNoKeys()
	}
}

// The server upgraded the reader, but the client does not know. The lease should continue as a
// reader's, and leave no keys behind.
func TestUpgradeUnknown(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	locks, observer := b.newClient(proxy.Addr(), dibs.TTL(20*time.Second)), b.newClient(b.server.Addr())
	b.warm(observer)
	for _, then := range []string{"unlock", "downgrade", "upgrade"} {
		l := b.acquire(locks, "read job")
		fence := l.Fence()
		b.begin()
		muted := proxy.MuteNextReply(key)
		failed := make(chan error, 1)
		go func() { failed <- l.TryUpgrade(t.Context()) }()
		b.await("the reply is dropped", muted)
		proxy.Drop() // before a retry
		b.wantErr(<-failed, dibs.ErrUnavailable)
		if s := b.inspect(observer, job); s.Holding != 1 || !s.Holders[0].Exclusive {
			t.Fatalf("%+v, want the reader upgraded", s)
		}
		if err := l.Err(); err != nil || l.Fence() != fence {
			t.Errorf("%v, fence %d: want the lease to continue with fence %d", err, l.Fence(), fence)
		}
		proxy.Thaw()
		b.eventually("the lease is renewed again", func() bool { return l.Extend(t.Context(), 20*time.Second) == nil })
		switch then {
		case "downgrade":
			if err := l.Downgrade(t.Context()); err != nil {
				t.Fatalf("downgrade: %v", err)
			}
			b.holding(observer, l, 1)
		case "upgrade":
			if err := l.TryUpgrade(t.Context()); err != nil {
				t.Fatalf("upgrade: %v", err)
			}
			b.holding(observer, l, 0)
		}
		reader := b.acquireAsync(observer, "read job")
		b.unlock(l)
		b.unlock(b.awaitEntry(reader).lease)
		b.eventually("no keys are left", func() bool { return len(b.remainingKeys()) == 0 })
	}
}

// After a resize, the fence from Inspect should revoke the lease, and an earlier fence should not.
func TestRevokeAfterResize(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks, operator := b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
	for _, changes := range [][]func(*dibs.Lease, context.Context) error{
		{(*dibs.Lease).Downgrade},
		{(*dibs.Lease).Downgrade, (*dibs.Lease).TryUpgrade},
		{(*dibs.Lease).TryUpgrade},
		{(*dibs.Lease).Downgrade, (*dibs.Lease).TryUpgrade, (*dibs.Lease).Downgrade},
	} {
		l := b.acquire(locks, "write job")
		if err := l.Extend(t.Context(), ttl); err != nil { // so that the server stores its fence
			t.Fatal(err)
		}
		seen := b.inspect(operator, job).Holders[0].Fence
		if seen != l.Fence() {
			t.Errorf("%d changes: Inspect returns fence %d, the lease has %d", len(changes), seen, l.Fence())
		}
		for _, change := range changes {
			if err := change(l, t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if have := b.inspect(operator, job).Holders[0].Fence; have != l.Fence() && have != 0 {
			t.Errorf("%d changes: Inspect returns fence %d, the lease has %d", len(changes), have, l.Fence())
		}
		if revoked, err := operator.Revoke(t.Context(), job, dibs.Holder{Fence: seen}, ""); err != nil || revoked {
			t.Errorf("%d changes: revoke of the fence before them: %t, %v", len(changes), revoked, err)
		}
		if revoked, err := operator.Revoke(t.Context(), job, dibs.Holder{Fence: l.Fence()}, ""); err != nil || !revoked {
			t.Errorf("%d changes: revoke of the fence after them: %t, %v", len(changes), revoked, err)
		}
		b.wantErr(l.Unlock(), dibs.ErrLost)
		b.eventually("no keys are left", func() bool { return len(b.remainingKeys()) == 0 })
	}
}

// acquireAsync acquires something in the background.
func (b *fixture) acquireAsync(c *dibs.Client, what string) <-chan entry {
	entered := make(chan entry, 1)
	ctx := deadline(b.t, generous)
	go func() {
		l, err := acquire(ctx, c, what)
		entered <- entry{l, err, time.Now()}
	}()
	return entered
}

// For any primitive, an acquire whose reply is lost with its connection is retried, and counts
// once.
func TestPrimitivesReplyReset(t *testing.T) {
	b := setUp(t)
	proxy := b.proxy()
	locks, rival := b.newClient(proxy.Addr()), b.newClient(b.server.Addr())
	b.warm(rival)
	for _, what := range []struct{ name, takes, fits, more string }{
		{"read", "read job", "read job", "write job"},
		{"permits", "permits job 2 3", "permits job 1 3", "permits job 3 3"},
		{"all", "all job k1 k2", "all k3 k4", "all k2 k3"},
		{"write", "write job", "all k3 k4", "read job"},
	} {
		for range 3 {
			b.begin()
			cut := proxy.CutNextReply(key)
			start := time.Now()
			l := b.acquire(locks, what.takes)
			took := time.Since(start)
			b.await("the reply is cut", cut)
			b.within(what.name+" reply reset: entry", took, 50*time.Millisecond)
			fits := b.acquire(rival, what.fits)
			waiter := b.enqueueFor(rival, what.more)

			b.begin()
			cut = proxy.CutNextReply(key)
			start = time.Now()
			if err := l.Unlock(); err != nil {
				t.Fatalf("%s: unlock: %v", what.name, err)
			}
			took = time.Since(start)
			b.await("the reply is cut", cut)
			b.within(what.name+" release reply reset: Unlock", took, time.Second)
			b.unlock(fits)
			e := b.awaitEntry(waiter)
			b.within(what.name+" release reply reset: waiter enters after", e.at.Sub(start), time.Second)

			// A waiter is in the queue once.
			behind := b.enqueueFor(rival, what.takes)
			cut = proxy.CutNextReply(key)
			own := b.enqueueFor(locks, what.takes)
			b.await("the reply is cut", cut)
			if n := b.call("ZCARD", "{"+key+"}:dibs:queue"); n != int64(2) {
				t.Errorf("%s: %v entries in the queue, want two", what.name, n)
			}
			b.unlock(e.lease)
			last := b.awaitEntry(behind)
			if what.name != "read" {
				b.unlock(last.lease)
				b.unlock(b.awaitEntry(own).lease)
			} else {
				b.unlock(b.awaitEntry(own).lease)
				b.unlock(last.lease)
			}
			b.eventually("no keys are left", func() bool { return len(b.remainingKeys()) == 0 })
		}
	}
}

// A call on a connection that becomes unresponsive ends at its deadline, and leaves none of its
// names locked.
func TestPrimitivesReplyMute(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	locks, rival := b.newClient(proxy.Addr()), b.newClient(b.server.Addr())
	b.warm(rival)
	for _, what := range []struct{ name, takes, then string }{
		{"all", "all job k1 k2", "all job k1 k2"},
		{"read", "read job", "write job"},
		{"permits", "permits job 2 3", "permits job 3 3"},
	} {
		b.begin()
		muted := proxy.MuteNextReply(key)
		start := time.Now()
		l, err := acquire(deadline(t, 500*time.Millisecond), locks, what.takes)
		returned := time.Now()
		b.await("the reply is dropped", muted)
		b.within(what.name+" reply mute: call with 500ms", returned.Sub(start), 550*time.Millisecond)
		if err == nil { // the retry succeeded just in time
			b.unlock(l)
		} else {
			b.wantErr(err, dibs.ErrUnavailable)
			l = b.acquire(rival, what.then)
			b.within(what.name+" reply mute: free after", time.Since(returned), 600*time.Millisecond)
			b.unlock(l)
		}
		proxy.Thaw()
		b.eventually("no keys are left", func() bool { return len(b.remainingKeys()) == 0 })
	}
}

// A multi-lock's holder that is cut off is notified before another client acquires one of its
// names.
func TestMultiMutexIsCutOff(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	locks, rival := b.newClient(proxy.Addr()), b.newClient(b.server.Addr())
	b.warm(rival)
	for _, cut := range []struct {
		name string
		off  func(*redistest.Proxy)
	}{{"freeze", (*redistest.Proxy).Freeze}, {"drop", (*redistest.Proxy).Drop}} {
		l := b.acquire(locks, "all job k1 k2")
		notified := make(chan time.Time, 1)
		go func() {
			<-l.Context().Done()
			notified <- time.Now()
		}()
		b.begin()
		cut.off(proxy)
		e := b.awaitEntry(b.enqueueFor(rival, "all k1 k2 k3"))
		ahead := e.at.Sub(<-notified)
		t.Logf("FIGURE multi-lock cut off, %s: notified %v before another client holds two of its names (limit 20ms, control %v)", cut.name, round(ahead), round(b.late()))
		if ahead < 20*time.Millisecond-b.late() {
			t.Errorf("notified %v before the other client, want 20ms", ahead)
		}
		b.wantErr(l.Unlock(), dibs.ErrLost)
		proxy.Thaw()
		b.eventually("its release changes nothing", func() bool { return b.call("GET", key) == nil })
		if s := b.inspect(rival, "k1"); s.Holding != 1 || s.Holders[0].Token != e.lease.Token() {
			t.Errorf("%+v, want the holder %s", s, e.lease.Token())
		}
		b.unlock(e.lease)
		b.eventually("no keys are left", func() bool { return len(b.remainingKeys()) == 0 })
	}
}

// A Revoke whose reply is lost should return an error or true, and have revoked once.
func TestRevokeReplyLost(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	proxy := b.proxy()
	const longTTL = 20 * time.Second
	operator := b.newClient(proxy.Addr(), dibs.TTL(longTTL))
	locks, rival := b.newClient(b.server.Addr(), dibs.TTL(longTTL)), b.newClient(b.server.Addr(), dibs.TTL(longTTL))
	b.warm(rival)
	for _, lose := range []struct {
		name  string
		arm   func(*redistest.Proxy) <-chan struct{}
		limit time.Duration
	}{
		{"reset", func(p *redistest.Proxy) <-chan struct{} { return p.CutNextReply(key) }, 50 * time.Millisecond},
		{"mute", func(p *redistest.Proxy) <-chan struct{} { return p.MuteNextReply(key) }, 1050 * time.Millisecond},
	} {
		for _, what := range []struct{ holds, waits string }{
			{"lock job", "lock job"}, {"read job", "write job"}, {"permits job 3 3", "permits job 1 3"}, {"all job k1", "all job k2"},
		} {
			l := b.acquire(locks, what.holds)
			waiter := b.enqueueFor(rival, what.waits)
			b.begin()
			lost := lose.arm(proxy)
			start := time.Now()
			revoked, err := operator.Revoke(t.Context(), job, dibs.Holder{Fence: l.Fence()}, "")
			took := time.Since(start)
			b.await("the reply is lost", lost)
			b.within("revoke reply "+lose.name+", "+what.holds+": done after", took, lose.limit)
			if err == nil && !revoked {
				t.Errorf("%s: Revoke returned false", what.holds)
			} else if err != nil {
				b.wantErr(err, dibs.ErrUnavailable)
			}
			b.await("the holder is notified", l.Context().Done())
			var loss *dibs.LostError
			if !errors.As(context.Cause(l.Context()), &loss) || loss.Reason != dibs.ReasonRevoked {
				t.Errorf("%s: %v, want ReasonRevoked", what.holds, context.Cause(l.Context()))
			}
			e := b.awaitEntry(waiter)
			b.within("revoke reply "+lose.name+", "+what.holds+": next entry", e.at.Sub(start), 50*time.Millisecond)
			b.wantErr(l.Unlock(), dibs.ErrLost)
			proxy.Thaw()
			if err := e.lease.Err(); err != nil {
				t.Errorf("%s: the next holder: %v", what.holds, err)
			}
			b.unlock(e.lease)
			b.eventually("no keys are left", func() bool { return len(b.remainingKeys()) == 0 })
		}
	}
}
