package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// The cases for shared leases, by readers and semaphore permits.

func sharedCases() []Case {
	return []Case{
		{"limit", "the sum of the held weights never exceeds the limit", limit},
		{"exclusive", "an exclusive lease and any other lease on its name exclude each other", exclusive},
		{"own limit", "a request is checked against its own limit, whatever the limits of the holders", ownLimit},
		{"shared expiry", "each shared lease ends at its own TTL, while others are extended", sharedExpiry},
		{"shared owner only", "a shared lease is released, extended and acquired again only with its own token", sharedOwnerOnly},
		{"grant together", "a release grants to all waiters at the head of the queue that fit, in order", grantTogether},
		{"heavy first waiter", "a waiter that does not fit is not overtaken by later ones", heavyFirstWaiter},
		{"heavy first waiter leaves", "when a first waiter that does not fit cancels or dies, later ones are served", heavyFirstWaiterLeaves},
		{"reserve shared", "a release with Reserve keeps the weight of a shared lease unavailable for that long", reserveShared},
		{"resize", "a lease can shrink, which serves the waiters that fit, and grows only if there is room", resize},
		{"resize needs a lease", "a resize changes nothing if the token does not hold the name, or after its Until", resizeNeedsLease},
		{"revoke", "the lease with the fence ends, and its client and the next waiter are notified; no other lease ends", revoke},
		{"extend shared repeatedly", "so does a shared lease", extendSharedRepeatedly},
		{"inspect shared", "Inspect returns each shared lease: token, weight, fence, remaining time", inspectShared},
		{"shared clients", "many clients read and write a name, and use permits, within the limits", sharedClients},
	}
}

// skipWithoutPermits skips the test if the store does not support permits.
func skipWithoutPermits(t *testing.T, s *driver.Full) {
	t.Helper()
	skipWithout(t, s, "permits", 2)
}

// skipWithoutReaders skips the test if the store does not support readers.
func skipWithoutReaders(t *testing.T, s *driver.Full) {
	t.Helper()
	skipWithout(t, s, "readers", driver.Unlimited)
}

func skipWithout(t *testing.T, s *driver.Full, what string, limit int) {
	t.Helper()
	r := newSilentClient(t, s).newRequest(what)
	r.Limit, r.Queue, r.Until = limit, false, time.Now().Add(operationTimeout)
	if _, err := s.Acquire(t.Context(), r); errors.Is(err, dibs.ErrInvalid) {
		t.Skipf("the store does not support %s: %v", what, err)
	}
	if err := s.Cancel(operationContext(t), r); err != nil {
		t.Fatal(err)
	}
}

// newShared returns a request for a shared lease.
func (p *testClient) newShared(name string, weight, limit int) driver.AcquireRequest {
	if limit != driver.Unlimited && weight < limit && !p.permitsChecked {
		skipWithoutPermits(p.t, p.s)
		p.permitsChecked = true
	}
	r := p.newRequest(name)
	r.Weight, r.Limit = weight, limit
	return r
}

func (p *testClient) newReader(name string) driver.AcquireRequest {
	return p.newShared(name, 1, driver.Unlimited)
}
func (p *testClient) newWriter(name string) driver.AcquireRequest {
	return p.newShared(name, driver.Unlimited, driver.Unlimited)
}

func (p *testClient) try(r driver.AcquireRequest) bool {
	p.t.Helper()
	r.Queue = false
	return p.acquire(r).Held
}

func (p *testClient) mustCancel(r driver.AcquireRequest) {
	p.t.Helper()
	if err := p.s.Cancel(p.t.Context(), r); err != nil {
		p.t.Fatalf("cancel %q: %v", r.Name, err)
	}
}

func (p *testClient) mustResize(r driver.AcquireRequest, weight, limit int) driver.AcquireReply {
	p.t.Helper()
	needs(p.t, p.s, "Resizer")
	r.Weight, r.Limit, r.Until = weight, limit, time.Now().Add(operationTimeout)
	a, err := p.s.Resize(p.t.Context(), r)
	if err != nil {
		p.t.Fatalf("resize %q: %v", r.Name, err)
	}
	return a
}

func (p *testClient) state(name string) driver.State {
	p.t.Helper()
	needs(p.t, p.s, "Inspector")
	state, err := p.s.Inspect(operationContext(p.t), name)
	if err != nil {
		p.t.Fatalf("inspect %q: %v", name, err)
	}
	return state
}

func limit(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	p.mustAcquire(p.newRequest("warm-up"))
	var held atomic.Int32
	var group sync.WaitGroup
	for i := range 60 {
		r := p.newShared("n", i%4+1, 10)
		r.Queue, r.Until = false, time.Now().Add(operationTimeout)
		group.Go(func() {
			a, err := s.Acquire(t.Context(), r)
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			if a.Held {
				held.Add(int32(r.Weight))
			}
		})
	}
	group.Wait()
	if n := held.Load(); n > 10 || n < 7 { // a request that did not fit was heavier than the rest
		t.Fatalf("%d of 10 held", n)
	}
}

func exclusive(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	reader, writer, mutex, permit := p.newReader("n"), p.newWriter("n"), p.newRequest("n"), p.newShared("n", 1, 9)
	for _, exclusive := range []driver.AcquireRequest{writer, mutex, p.newShared("n", 9, 9)} {
		fence := p.mustAcquire(exclusive).Fence
		for _, other := range []driver.AcquireRequest{reader, permit, p.newWriter("n"), p.newRequest("n")} {
			if p.try(other) {
				t.Fatalf("%d of %d granted beside %d of %d", other.Weight, other.Limit, exclusive.Weight, exclusive.Limit)
			}
		}
		p.mustRelease(exclusive, fence)
	}
	p.mustAcquire(reader)
	p.mustAcquire(permit)
	for _, exclusive := range []driver.AcquireRequest{writer, mutex} {
		if p.try(exclusive) {
			t.Fatalf("%d of %d granted beside shared leases", exclusive.Weight, exclusive.Limit)
		}
	}
	p.mustRelease(reader, 0)
	p.mustRelease(permit, 0)
	if !p.try(mutex) {
		t.Error("the name is not free after the last shared lease was released")
	}
}

func ownLimit(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	old := []driver.AcquireRequest{p.newShared("n", 1, 2), p.newShared("n", 1, 2)}
	for _, r := range old {
		p.mustAcquire(r)
	}
	if p.try(p.newShared("n", 1, 2)) {
		t.Error("weight 3 of limit 2")
	}
	more := p.newShared("n", 2, 4)
	p.mustAcquire(more)
	p.mustRelease(old[0], 0)
	if p.try(p.newShared("n", 1, 2)) {
		t.Error("limit 2 granted with 3 held")
	}
	if !p.try(p.newShared("n", 1, 4)) {
		t.Error("limit 4 refused with 3 held")
	}
}

func sharedExpiry(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	ttl := p.shortTTL()
	for try := 1; !oneSharedExpires(p, fmt.Sprintf("n%d", try), try == tries); try++ {
		t.Logf("the machine was suspended for %v", ttl)
	}
	// A full set of expired leases, and their remains in the store, should block no request.
	for range 20 {
		r := p.newShared("n", 1, 20)
		r.TTL = max(20*time.Millisecond, p.limits.MinTTL)
		p.mustAcquire(r)
	}
	p.sleepPast(max(40*time.Millisecond, p.limits.MinTTL))
	p.mustAcquire(p.newShared("n", 19, 20))
	if p.try(p.newShared("n", 2, 20)) {
		t.Error("weight 21 of limit 20")
	}
	if !p.try(p.newShared("n", 1, 20)) {
		t.Error("expired leases are counted")
	}
}

// oneSharedExpires returns false if the other lease may have expired, because the machine
// was suspended.
func oneSharedExpires(p *testClient, name string, last bool) bool {
	p.t.Helper()
	dies, lives, writer := p.newReader(name), p.newReader(name), p.newWriter(name)
	ttl := p.shortTTL()
	dies.TTL, lives.TTL = ttl, ttl
	p.mustAcquire(dies)
	over := time.Now().Add(ttl + 50*time.Millisecond + p.limits.Late)
	extended := time.Now()
	suspended := func() bool { return !last && time.Since(extended) >= ttl }
	p.mustAcquire(lives)
	for time.Now().Before(over) {
		sent := time.Now()
		switch err := p.extend(lives, ttl); {
		case err != nil && suspended():
			return false
		case err != nil:
			p.t.Fatalf("extend: %v", err)
		}
		extended = sent
		time.Sleep(20 * time.Millisecond)
	}
	state := p.state(name)
	wantErr(p.t, p.extend(dies, time.Minute), dibs.ErrLost)
	if p.release(dies, 0) {
		p.t.Error("the release of an expired lease reports true")
	}
	a := p.acquire(writer)
	if suspended() {
		return false
	}
	if state.Holding != 1 || len(state.Holders) != 1 || state.Holders[0].Token != lives.Token {
		p.t.Fatalf("%+v: want only the extended lease", state)
	}
	if a.Held || a.Position != 1 || a.Holder != lives.Token || a.Remaining <= 0 || a.Remaining > ttl {
		p.t.Errorf("%+v, want it queued, with holder %s and its remaining time", a, lives.Token)
	}
	p.acquireBy(writer, time.Now().Add(ttl))
	return true
}

func sharedOwnerOnly(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	mine, other := p.newShared("n", 2, 4), p.newShared("n", 2, 4)
	first := p.mustAcquire(mine)
	if p.release(other, first.Fence) {
		t.Error("a release with another token reports true")
	}
	wantErr(t, p.extend(other, time.Hour), dibs.ErrLost)
	mine.TTL = p.shortTTL()
	if again := p.mustAcquire(mine); again.Fence < first.Fence {
		t.Errorf("fence %d after %d", again.Fence, first.Fence)
	}
	if err := p.extend(mine, p.shortTTL()); err != nil {
		t.Errorf("extend: %v", err)
	}
	state := p.state("n")
	if state.Holding != 1 || state.Holders[0].Weight != 2 || state.Holders[0].Remaining < time.Minute/2 {
		t.Errorf("after a repeated acquire and an extension with a shorter TTL: %+v", state)
	}
	p.mustAcquire(other)
	if p.try(p.newShared("n", 1, 4)) {
		t.Error("a repeated acquire made room")
	}
	p.mustRelease(mine, 0)
	if p.release(mine, 0) {
		t.Error("a second release reports true")
	}
	if !p.try(p.newShared("n", 1, 4)) {
		t.Error("no room after a release")
	}
	if err := p.extend(other, time.Minute); err != nil {
		t.Errorf("extend: %v", err)
	}
}

func grantTogether(t *testing.T, s *driver.Full) {
	holder := newSilentClient(t, s)
	h := holder.newWriter("n")
	fence := holder.mustAcquire(h).Fence
	var clients []*testClient
	var requests []driver.AcquireRequest
	for i := range 8 {
		clients = append(clients, newClient(t, s))
		r := clients[i].newReader("n")
		if i == 5 {
			r = clients[i].newWriter("n")
		}
		requests = append(requests, r)
		clients[i].mustQueue(r, i+1)
	}
	holder.mustRelease(h, fence)
	for i := range 5 {
		if e := clients[i].wantGranted(requests[i]); e.Fence <= fence {
			t.Errorf("fence %d after %d", e.Fence, fence)
		}
	}
	for i := 5; i < 8; i++ {
		clients[i].wantNoEvent(30 * time.Millisecond)
	}
	for i := range 5 {
		clients[5].wantNoEvent(0)
		clients[i].mustRelease(requests[i], 0)
	}
	fence = clients[5].wantGranted(requests[5]).Fence
	clients[6].wantNoEvent(30 * time.Millisecond)
	clients[5].mustRelease(requests[5], fence)
	clients[6].wantGranted(requests[6])
	clients[7].wantGranted(requests[7])
	if n := holder.state("n").Holding; n != 2 {
		t.Errorf("%d holders, want 2", n)
	}
}

func heavyFirstWaiter(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	held := []driver.AcquireRequest{p.newShared("n", 1, 4), p.newShared("n", 1, 4), p.newShared("n", 1, 4)}
	for _, r := range held {
		p.mustAcquire(r)
	}
	heavy, light := p.newShared("n", 3, 4), p.newShared("n", 1, 4)
	p.mustQueue(heavy, 1)
	p.mustQueue(light, 2)
	if p.try(p.newShared("n", 1, 4)) {
		t.Error("a try overtook a waiter")
	}
	p.mustRelease(held[0], 0)
	p.wantNoEvent(30 * time.Millisecond)
	p.mustQueue(light, 2) // a heartbeat, which still does not overtake
	p.mustRelease(held[1], 0)
	p.wantGranted(heavy)
	p.wantNoEvent(30 * time.Millisecond) // 1 + 3 = 4
	p.mustRelease(held[2], 0)
	p.wantGranted(light)
}

func heavyFirstWaiterLeaves(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	p.mustAcquire(p.newReader("n"))
	writer, reader := p.newWriter("n"), p.newReader("n")
	p.mustQueue(writer, 1)
	p.mustQueue(reader, 2)
	p.mustCancel(writer)
	p.wantGranted(reader)

	dead := newSilentClient(t, s)
	writer, reader = dead.newWriter("n"), p.newReader("n")
	dead.mustQueue(writer, 1)
	p.acquireBy(reader, time.Now().Add(p.limits.WaiterTTL))
}

func reserveShared(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	mine, other := p.newShared("n", 2, 3), p.newShared("n", 1, 3)
	p.mustAcquire(mine)
	p.mustAcquire(other)
	next := p.newShared("n", 2, 3)
	p.mustQueue(next, 1)
	ttl := p.shortTTL()
	begin := time.Now()
	freed, err := s.Release(operationContext(t), driver.ReleaseRequest{Name: "n", Token: mine.Token, Reserve: ttl})
	if err != nil || !freed {
		t.Fatalf("release: %v, %v", freed, err)
	}
	wantErr(t, p.extend(mine, time.Hour), dibs.ErrLost)
	if p.release(mine, 0) {
		t.Error("a second release reports true")
	}
	p.acquireBy(next, time.Now().Add(ttl))
	if took := time.Since(begin); took < ttl-10*time.Millisecond {
		t.Errorf("free after %v, want %v", took, ttl)
	}
}

func resize(t *testing.T, s *driver.Full) {
	p := newClient(t, s)
	mine, reader, writer := p.newWriter("n"), p.newReader("n"), p.newWriter("n")
	fence := p.mustAcquire(mine).Fence
	p.mustQueue(reader, 1)
	p.mustQueue(writer, 2)
	down := p.mustResize(mine, 1, driver.Unlimited)
	if !down.Held || down.Fence <= fence {
		t.Fatalf("downgrade: %+v after fence %d", down, fence)
	}
	p.wantGranted(reader)
	p.wantNoEvent(30 * time.Millisecond)
	if again := p.mustResize(mine, 1, driver.Unlimited); !again.Held {
		t.Errorf("repeated: %+v", again)
	}
	// The reader is the holder in the way, also if it expires later.
	if errs := s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: reader.Token, Client: reader.Client, TTL: time.Hour}}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	if up := p.mustResize(mine, driver.Unlimited, driver.Unlimited); up.Held || up.Holder != reader.Token {
		t.Fatalf("upgrade beside a reader: %+v, want the reader as holder", up)
	}
	if n := p.state("n").Holding; n != 2 {
		t.Fatalf("%d holders after a refused upgrade, want 2", n)
	}
	p.mustRelease(reader, 0)
	up := p.mustResize(mine, driver.Unlimited, driver.Unlimited)
	if !up.Held || up.Fence <= down.Fence {
		t.Fatalf("upgrade: %+v after fence %d", up, down.Fence)
	}
	if again := p.mustResize(mine, driver.Unlimited, driver.Unlimited); !again.Held {
		t.Errorf("repeated: %+v", again)
	}
	if p.try(p.newReader("n")) {
		t.Error("a reader was granted beside an upgraded lease")
	}
	if left := p.state("n").Holders[0].Remaining; left < time.Minute/2 {
		t.Errorf("%v remaining of a minute", left)
	}
	p.mustRelease(mine, up.Fence)
	p.wantGranted(writer)
	p.mustRelease(writer, 0)

	permits := p.newShared("n", 1, 4)
	p.mustAcquire(permits)
	p.mustAcquire(p.newShared("n", 2, 4))
	if a := p.mustResize(permits, 3, 4); a.Held {
		t.Error("weight 5 of limit 4")
	}
	if a := p.mustResize(permits, 2, 4); !a.Held {
		t.Error("weight 4 of limit 4 refused")
	}
	if p.try(p.newShared("n", 1, 4)) {
		t.Error("the added weight is not counted")
	}
	p.mustResize(permits, 1, 4)
	if !p.try(p.newShared("n", 1, 4)) {
		t.Error("the released weight is counted")
	}
}

func resizeNeedsLease(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	p.mustAcquire(p.newRequest("warm-up"))
	for _, r := range []driver.AcquireRequest{p.newReader("n"), p.newWriter("n")} {
		if a := p.mustResize(r, r.Weight, r.Limit); a.Held {
			t.Errorf("a free name: %+v", a)
		}
	}
	other := p.newWriter("n")
	p.mustAcquire(other)
	if a := p.mustResize(p.newReader("n"), 1, driver.Unlimited); a.Held || a.Holder != other.Token {
		t.Errorf("a name held by another token: %+v", a)
	}
	late := other
	late.Weight, late.Until = 1, time.Now().Add(-time.Second)
	if a, err := s.Resize(t.Context(), late); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for an expired request", a, err)
	}
	if state := p.state("n"); state.Holding != 1 || state.Holders[0].Weight != 0 {
		t.Errorf("%+v: want one exclusive holder", state)
	}
}

func revoke(t *testing.T, s *driver.Full) {
	needs(t, s, "Revoker")
	p, other := newClient(t, s), newClient(t, s)
	reason := "host is gone, see ticket 7" // for the first; later revocations have none
	revoke := func(name string, fence uint64) bool {
		t.Helper()
		revoked, err := s.Revoke(operationContext(t), driver.RevokeRequest{Name: name, Fence: fence, Reason: reason})
		if err != nil {
			t.Fatalf("revoke: %v", err)
		}
		return revoked
	}
	wantRevoked := func(r driver.AcquireRequest, fence uint64) {
		t.Helper()
		if e := p.nextEvent(); e.Kind != driver.EventRevoked || e.Token != r.Token || e.Fence != fence || e.Reason != reason {
			t.Fatalf("event %+v, want EventRevoked for %s with fence %d and reason %q", e, r.Token, fence, reason)
		}
		reason = ""
	}
	if revoke("n", 7) {
		t.Error("a free name was revoked")
	}
	mine, next := p.newRequest("n"), other.newRequest("n")
	fence := p.mustAcquire(mine).Fence
	other.mustQueue(next, 1)
	if revoke("n", fence-1) || revoke("n", fence+1) || revoke("m", fence) {
		t.Fatal("another fence revoked the lease")
	}
	if !revoke("n", fence) {
		t.Fatal("the lease's fence did not revoke it")
	}
	wantRevoked(mine, fence)
	second := other.wantServed(next)
	wantErr(t, p.extend(mine, time.Minute), dibs.ErrLost)
	if p.release(mine, fence) || revoke("n", fence) {
		t.Error("revoked twice")
	}
	p.wantHolder("n", next.Token)
	other.mustRelease(next, second)
	p.wantHolder("n", "")

	// An extended lease keeps its fence, whatever else is acquired.
	old := p.newRequest("o")
	old.Token = "req-1" // the store cannot derive the client from it
	fence = p.mustAcquire(old).Fence
	ext := driver.ExtendRequest{Name: "o", Token: old.Token, Client: old.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{ext})[0]; err != nil {
		t.Fatal(err)
	}
	if h := p.state("o").Holders[0]; h.Fence != fence {
		t.Errorf("holder %+v, want fence %d", h, fence)
	}
	if revoke("o", fence-1) || revoke("o", fence+1) {
		t.Fatal("another fence revoked an extended lease")
	}
	if !revoke("o", fence) {
		t.Error("an extended lease was not revoked")
	}
	wantRevoked(old, fence)
	p.wantHolder("o", "")

	// A lease should not match its earlier fence.
	repeated := p.newRequest("q")
	fence = p.mustAcquire(repeated).Fence
	newer := p.mustAcquire(repeated).Fence
	ext = driver.ExtendRequest{Name: "q", Token: repeated.Token, Client: repeated.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{ext})[0]; err != nil { // sent before the repeated acquire
		t.Fatal(err)
	}
	if newer > fence && revoke("q", fence) {
		t.Error("an older fence revoked the lease")
	}
	if !revoke("q", newer) {
		t.Error("the newer fence did not revoke the lease")
	}
	wantRevoked(repeated, newer)
	turned := p.newWriter("r")
	fence = p.mustAcquire(turned).Fence
	ext = driver.ExtendRequest{Name: "r", Token: turned.Token, Client: turned.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{ext})[0]; err != nil {
		t.Fatal(err)
	}
	p.mustResize(turned, 1, driver.Unlimited)
	newer = p.mustResize(turned, driver.Unlimited, driver.Unlimited).Fence
	if revoke("r", fence) {
		t.Error("the fence before a resize revoked the lease")
	}
	if !revoke("r", newer) {
		t.Error("the fence after a resize did not revoke the lease")
	}
	wantRevoked(turned, newer)

	// Of several shared leases, only the lease with the fence should end.
	one, two := p.newShared("p", 1, 2), p.newShared("p", 1, 2)
	p.mustAcquire(one)
	fence = p.mustAcquire(two).Fence
	third := other.newShared("p", 1, 2)
	other.mustQueue(third, 1)
	if !revoke("p", fence) {
		t.Fatal("a shared lease was not revoked")
	}
	wantRevoked(two, fence)
	other.wantGranted(third)
	if err := p.extend(one, time.Minute); err != nil {
		t.Errorf("the other shared lease: %v", err)
	}
}

func inspectShared(t *testing.T, s *driver.Full) {
	p := newSilentClient(t, s)
	one, two := p.newShared("n", 1, 9), p.newShared("n", 3, 9)
	two.TTL = time.Hour
	two.Token += ":backup"
	f1, f2 := p.mustAcquire(one).Fence, p.mustAcquire(two).Fence
	p.mustQueue(p.newShared("n", 6, 9), 1)
	state := p.state("n")
	if state.Holding != 2 || len(state.Holders) != 2 || state.Waiting != 1 || state.Fence < f2 {
		t.Fatalf("%+v", state)
	}
	for i, want := range []driver.Holder{{Token: one.Token, Weight: 1, Fence: f1}, {Token: two.Token, Label: "backup", Weight: 3, Fence: f2}} {
		have := state.Holders[i]
		left := have.Remaining
		have.Remaining, have.Since = 0, time.Time{}
		if have != want || left <= 0 || left > time.Hour {
			t.Errorf("holder %d: %+v, %v remaining; want %+v", i, have, left, want)
		}
	}
	needs(t, s, "Lister")
	names, err := s.List(t.Context(), "*")
	if err != nil || len(names) != 1 {
		t.Errorf("list: %q, %v", names, err)
	}
}

func sharedClients(t *testing.T, s *driver.Full) {
	skipWithoutPermits(t, s)
	const processes, workers, rounds, permits = 3, 6, 8, 3
	var readers, writers, taken atomic.Int32
	var group sync.WaitGroup
	for range processes {
		c := dibs.New(s, dibs.TTL(time.Minute), dibs.Timeout(operationTimeout))
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		for i := range workers {
			group.Go(func() {
				for range rounds {
					rw := c.RWMutex("rw")
					err := rw.Reader().Do(t.Context(), func(context.Context) error {
						readers.Add(1)
						defer readers.Add(-1)
						if writers.Load() > 0 {
							t.Error("a reader beside a writer")
						}
						return nil
					})
					err = errors.Join(err, rw.Writer().Do(t.Context(), func(context.Context) error {
						defer writers.Add(-1)
						if writers.Add(1) > 1 || readers.Load() > 0 {
							t.Error("a writer beside other holders")
						}
						return nil
					}))
					n := i%permits + 1
					lease, failed := c.Semaphore("sem", permits).Permits(n).Lock(t.Context())
					if failed == nil {
						if taken.Add(int32(n)) > permits {
							t.Error("more permits than there are")
						}
						taken.Add(int32(-n))
						failed = lease.Unlock()
					}
					if err = errors.Join(err, failed); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
}

func extendSharedRepeatedly(t *testing.T, s *driver.Full) {
	skipWithoutPermits(t, s)
	p := newSilentClient(t, s)
	p.extendRepeatedly(p.newReader("read"))
	p.extendRepeatedly(p.newWriter("written"))
	p.extendRepeatedly(p.newShared("permits", 2, 3))
}
