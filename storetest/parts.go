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

// The laws of names that are held in parts: by readers, and by who has permits of a
// semaphore.

func sharedCases() []Case {
	return []Case{
		{"limit", "the weights that are held are never more than the limit", limit},
		{"alone", "who holds all holds alone: no part beside it, and it beside no part", exclusive},
		{"own limit", "each claim goes by its own limit, whatever those had who hold", ownLimit},
		{"parts expire", "each part ends with its own TTL, while others are extended", sharesExpire},
		{"parts are owned", "a part is released, extended and asked for again by its own token only", sharesAreOwned},
		{"enter together", "a release serves all at the head of the line that fit, in order", enterTogether},
		{"heavy head", "who does not fit yet is not overtaken by those behind it", heavyHead},
		{"heavy head leaves", "when a head that does not fit gives up or dies, those behind it are served", heavyHeadLeaves},
		{"keep a part", "a release with Keep leaves the part taken for that long", reserveShare},
		{"reweigh", "a holding gets smaller and serves who fits, and larger only if there is room", resize},
		{"reweigh takes nothing", "reweigh takes nothing that the token does not hold, and nothing after its time", resizeNeedsLease},
		{"break", "the holding with a fence ends, its client and the next in line are told; no other holding does", revoke},
		{"parts are told", "inspect tells each part: token, weight, fence, time left", inspectShared},
		{"clients of parts", "many clients read and write a name, and share permits, within its limits", sharedClients},
	}
}

// counts skips the test if the store cannot count permits.
func skipWithoutPermits(t *testing.T, s driver.Store) {
	t.Helper()
	c := newSilentClient(t, s).newRequest("permits")
	c.Limit, c.Queue, c.Until = 2, false, time.Now().Add(operationTimeout)
	if _, err := s.Acquire(t.Context(), c); errors.Is(err, dibs.ErrInvalid) {
		t.Skipf("the store does not count: %v", err)
	}
	if err := s.Cancel(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// share returns a claim for a part.
func (p *testClient) newShared(name string, weight, limit int) driver.AcquireRequest {
	if limit != driver.Unlimited && weight < limit && !p.permitsChecked {
		skipWithoutPermits(p.t, p.s)
		p.permitsChecked = true
	}
	c := p.newRequest(name)
	c.Weight, c.Limit = weight, limit
	return c
}

func (p *testClient) newReader(name string) driver.AcquireRequest {
	return p.newShared(name, 1, driver.Unlimited)
}
func (p *testClient) newWriter(name string) driver.AcquireRequest {
	return p.newShared(name, driver.Unlimited, driver.Unlimited)
}

func (p *testClient) try(c driver.AcquireRequest) bool {
	p.t.Helper()
	c.Queue = false
	return p.acquire(c).Held
}

func (p *testClient) mustCancel(c driver.AcquireRequest) {
	p.t.Helper()
	if err := p.s.Cancel(p.t.Context(), c); err != nil {
		p.t.Fatalf("abandon %q: %v", c.Name, err)
	}
}

func (p *testClient) mustResize(c driver.AcquireRequest, weight, limit int) driver.AcquireReply {
	p.t.Helper()
	c.Weight, c.Limit, c.Until = weight, limit, time.Now().Add(operationTimeout)
	a, err := p.s.Resize(p.t.Context(), c)
	if err != nil {
		p.t.Fatalf("reweigh %q: %v", c.Name, err)
	}
	return a
}

func (p *testClient) state(name string) dibs.State {
	p.t.Helper()
	state, err := p.s.Inspect(operationContext(p.t), name)
	if err != nil {
		p.t.Fatalf("inspect %q: %v", name, err)
	}
	return state
}

func limit(t *testing.T, s driver.Store) {
	p := newSilentClient(t, s)
	p.mustAcquire(p.newRequest("warm-up"))
	var held atomic.Int32
	var group sync.WaitGroup
	for i := range 60 {
		c := p.newShared("n", i%4+1, 10)
		c.Queue, c.Until = false, time.Now().Add(operationTimeout)
		group.Go(func() {
			a, err := s.Acquire(t.Context(), c)
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			if a.Held {
				held.Add(int32(c.Weight))
			}
		})
	}
	group.Wait()
	if n := held.Load(); n > 10 || n < 7 { // what did not fit was heavier than what was left
		t.Fatalf("%d of 10 are held", n)
	}
}

func exclusive(t *testing.T, s driver.Store) {
	p := newSilentClient(t, s)
	reader, writer, mutex, permit := p.newReader("n"), p.newWriter("n"), p.newRequest("n"), p.newShared("n", 1, 9)
	for _, alone := range []driver.AcquireRequest{writer, mutex, p.newShared("n", 9, 9)} {
		fence := p.mustAcquire(alone).Fence
		for _, other := range []driver.AcquireRequest{reader, permit, p.newWriter("n"), p.newRequest("n")} {
			if p.try(other) {
				t.Fatalf("%d of %d entered beside %d of %d", other.Weight, other.Limit, alone.Weight, alone.Limit)
			}
		}
		p.mustRelease(alone, fence)
	}
	p.mustAcquire(reader)
	p.mustAcquire(permit)
	for _, alone := range []driver.AcquireRequest{writer, mutex} {
		if p.try(alone) {
			t.Fatalf("%d of %d entered beside parts", alone.Weight, alone.Limit)
		}
	}
	p.mustRelease(reader, 0)
	p.mustRelease(permit, 0)
	if !p.try(mutex) {
		t.Error("the name is not free after the last part was released")
	}
}

func ownLimit(t *testing.T, s driver.Store) {
	p := newSilentClient(t, s)
	old := []driver.AcquireRequest{p.newShared("n", 1, 2), p.newShared("n", 1, 2)}
	for _, c := range old {
		p.mustAcquire(c)
	}
	if p.try(p.newShared("n", 1, 2)) {
		t.Error("three of two")
	}
	more := p.newShared("n", 2, 4)
	p.mustAcquire(more)
	p.mustRelease(old[0], 0)
	if p.try(p.newShared("n", 1, 2)) {
		t.Error("an old limit of two, with three held")
	}
	if !p.try(p.newShared("n", 1, 4)) {
		t.Error("a new limit of four, with three held, has no room")
	}
}

func sharesExpire(t *testing.T, s driver.Store) {
	p := newSilentClient(t, s)
	for try := 1; !oneShareExpires(p, fmt.Sprintf("n%d", try), try == tries); try++ {
		t.Logf("the machine stood still for %v", ttl)
	}
	// As many parts as may be, all dead, hinder nobody, nor does what they leave.
	for range 20 {
		c := p.newShared("n", 1, 20)
		c.TTL = 20 * time.Millisecond
		p.mustAcquire(c)
	}
	time.Sleep(60 * time.Millisecond)
	p.mustAcquire(p.newShared("n", 19, 20))
	if p.try(p.newShared("n", 2, 20)) {
		t.Error("21 of 20")
	}
	if !p.try(p.newShared("n", 1, 20)) {
		t.Error("dead parts are counted")
	}
}

// onePartExpires returns false if the other one may have expired because the machine
// stood still.
func oneShareExpires(p *testClient, name string, last bool) bool {
	p.t.Helper()
	dies, lives, writer := p.newReader(name), p.newReader(name), p.newWriter(name)
	dies.TTL, lives.TTL = ttl, ttl
	p.mustAcquire(dies)
	over := time.Now().Add(ttl + 50*time.Millisecond)
	extended := time.Now()
	stoodStill := func() bool { return !last && time.Since(extended) >= ttl }
	p.mustAcquire(lives)
	for time.Now().Before(over) {
		asked := time.Now()
		switch err := p.extend(lives, ttl); {
		case err != nil && stoodStill():
			return false
		case err != nil:
			p.t.Fatalf("extend: %v", err)
		}
		extended = asked
		time.Sleep(20 * time.Millisecond)
	}
	state := p.state(name)
	wantErr(p.t, p.extend(dies, time.Minute), dibs.ErrLost)
	if p.release(dies, 0) {
		p.t.Error("the release of an expired part reports true")
	}
	a := p.acquire(writer)
	if stoodStill() {
		return false
	}
	if state.Holding != 1 || len(state.Holders) != 1 || state.Holders[0].Token != lives.Token {
		p.t.Fatalf("%+v: want only the one that was extended", state)
	}
	if a.Held || a.Position != 1 || a.Holder != lives.Token || a.Remaining <= 0 || a.Remaining > ttl {
		p.t.Errorf("%+v, want to wait, and to be told of %s and its time", a, lives.Token)
	}
	p.acquireBy(writer, time.Now().Add(ttl))
	return true
}

func sharesAreOwned(t *testing.T, s driver.Store) {
	p := newSilentClient(t, s)
	mine, other := p.newShared("n", 2, 4), p.newShared("n", 2, 4)
	first := p.mustAcquire(mine)
	if p.release(other, first.Fence) {
		t.Error("a stranger's release reports true")
	}
	wantErr(t, p.extend(other, time.Hour), dibs.ErrLost)
	mine.TTL = ttl
	if again := p.mustAcquire(mine); again.Fence < first.Fence {
		t.Errorf("fence %d after %d", again.Fence, first.Fence)
	}
	if err := p.extend(mine, ttl); err != nil {
		t.Errorf("extend: %v", err)
	}
	state := p.state("n")
	if state.Holding != 1 || state.Holders[0].Weight != 2 || state.Holders[0].Remaining < time.Minute/2 {
		t.Errorf("after asking again, and extending, with a shorter TTL: %+v", state)
	}
	p.mustAcquire(other)
	if p.try(p.newShared("n", 1, 4)) {
		t.Error("asking again made room")
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

func enterTogether(t *testing.T, s driver.Store) {
	holder := newSilentClient(t, s)
	h := holder.newWriter("n")
	fence := holder.mustAcquire(h).Fence
	var crowd []*testClient
	var claims []driver.AcquireRequest
	for i := range 8 {
		crowd = append(crowd, newClient(t, s))
		c := crowd[i].newReader("n")
		if i == 5 {
			c = crowd[i].newWriter("n")
		}
		claims = append(claims, c)
		crowd[i].mustQueue(c, i+1)
	}
	holder.mustRelease(h, fence)
	for i := range 5 {
		if e := crowd[i].wantGranted(claims[i]); e.Fence <= fence {
			t.Errorf("fence %d after %d", e.Fence, fence)
		}
	}
	for i := 5; i < 8; i++ {
		crowd[i].wantNoEvent(30 * time.Millisecond)
	}
	for i := range 5 {
		crowd[5].wantNoEvent(0)
		crowd[i].mustRelease(claims[i], 0)
	}
	fence = crowd[5].wantGranted(claims[5]).Fence
	crowd[6].wantNoEvent(30 * time.Millisecond)
	crowd[5].mustRelease(claims[5], fence)
	crowd[6].wantGranted(claims[6])
	crowd[7].wantGranted(claims[7])
	if n := holder.state("n").Holding; n != 2 {
		t.Errorf("%d hold, want 2", n)
	}
}

func heavyHead(t *testing.T, s driver.Store) {
	p := newClient(t, s)
	held := []driver.AcquireRequest{p.newShared("n", 1, 4), p.newShared("n", 1, 4), p.newShared("n", 1, 4)}
	for _, c := range held {
		p.mustAcquire(c)
	}
	heavy, light := p.newShared("n", 3, 4), p.newShared("n", 1, 4)
	p.mustQueue(heavy, 1)
	p.mustQueue(light, 2)
	if p.try(p.newShared("n", 1, 4)) {
		t.Error("a try overtook")
	}
	p.mustRelease(held[0], 0)
	p.wantNoEvent(30 * time.Millisecond)
	p.mustQueue(light, 2) // asks again, and still does not overtake
	p.mustRelease(held[1], 0)
	p.wantGranted(heavy)
	p.wantNoEvent(30 * time.Millisecond) // one and three are four
	p.mustRelease(held[2], 0)
	p.wantGranted(light)
}

func heavyHeadLeaves(t *testing.T, s driver.Store) {
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
	p.acquireBy(reader, time.Now().Add(driver.WaiterTTL))
}

func reserveShare(t *testing.T, s driver.Store) {
	p := newClient(t, s)
	mine, other := p.newShared("n", 2, 3), p.newShared("n", 1, 3)
	p.mustAcquire(mine)
	p.mustAcquire(other)
	next := p.newShared("n", 2, 3)
	p.mustQueue(next, 1)
	begin := time.Now()
	freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: mine.Token, Reserve: ttl})
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

func resize(t *testing.T, s driver.Store) {
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
		t.Errorf("asked again: %+v", again)
	}
	if up := p.mustResize(mine, driver.Unlimited, driver.Unlimited); up.Held || up.Holder != reader.Token {
		t.Fatalf("upgrade beside a reader: %+v, want to be told of it", up)
	}
	if n := p.state("n").Holding; n != 2 {
		t.Fatalf("%d hold after an upgrade that was refused, want 2", n)
	}
	p.mustRelease(reader, 0)
	up := p.mustResize(mine, driver.Unlimited, driver.Unlimited)
	if !up.Held || up.Fence <= down.Fence {
		t.Fatalf("upgrade: %+v after fence %d", up, down.Fence)
	}
	if again := p.mustResize(mine, driver.Unlimited, driver.Unlimited); !again.Held {
		t.Errorf("asked again: %+v", again)
	}
	if p.try(p.newReader("n")) {
		t.Error("a reader entered beside an upgraded one")
	}
	if left := p.state("n").Holders[0].Remaining; left < time.Minute/2 {
		t.Errorf("%v left of a minute", left)
	}
	p.mustRelease(mine, up.Fence)
	p.wantGranted(writer)
	p.mustRelease(writer, 0)

	permits := p.newShared("n", 1, 4)
	p.mustAcquire(permits)
	p.mustAcquire(p.newShared("n", 2, 4))
	if a := p.mustResize(permits, 3, 4); a.Held {
		t.Error("five of four")
	}
	if a := p.mustResize(permits, 2, 4); !a.Held {
		t.Error("four of four is refused")
	}
	if p.try(p.newShared("n", 1, 4)) {
		t.Error("what was added is not counted")
	}
	p.mustResize(permits, 1, 4)
	if !p.try(p.newShared("n", 1, 4)) {
		t.Error("what was given up is counted")
	}
}

func resizeNeedsLease(t *testing.T, s driver.Store) {
	p := newSilentClient(t, s)
	p.mustAcquire(p.newRequest("warm-up"))
	for _, c := range []driver.AcquireRequest{p.newReader("n"), p.newWriter("n")} {
		if a := p.mustResize(c, c.Weight, c.Limit); a.Held {
			t.Errorf("a free name: %+v", a)
		}
	}
	other := p.newWriter("n")
	p.mustAcquire(other)
	if a := p.mustResize(p.newReader("n"), 1, driver.Unlimited); a.Held || a.Holder != other.Token {
		t.Errorf("a name that another one holds: %+v", a)
	}
	late := other
	late.Weight, late.Until = 1, time.Now().Add(-time.Second)
	if a, err := s.Resize(t.Context(), late); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for a claim whose time is over", a, err)
	}
	if state := p.state("n"); state.Holding != 1 || state.Holders[0].Weight != 0 {
		t.Errorf("%+v: want one who holds alone", state)
	}
}

func revoke(t *testing.T, s driver.Store) {
	p, other := newClient(t, s), newClient(t, s)
	end := func(name string, fence uint64) bool {
		t.Helper()
		broken, err := s.Revoke(t.Context(), name, fence)
		if err != nil {
			t.Fatalf("break: %v", err)
		}
		return broken
	}
	wantBroken := func(c driver.AcquireRequest, fence uint64) {
		t.Helper()
		if e := p.nextEvent(); e.Kind != driver.EventRevoked || e.Token != c.Token || e.Fence != fence {
			t.Fatalf("event %+v, want that %s with fence %d was broken", e, c.Token, fence)
		}
	}
	if end("n", 7) {
		t.Error("a free name was broken")
	}
	mine, next := p.newRequest("n"), other.newRequest("n")
	fence := p.mustAcquire(mine).Fence
	other.mustQueue(next, 1)
	if end("n", fence-1) || end("n", fence+1) || end("m", fence) {
		t.Fatal("another fence broke it")
	}
	if !end("n", fence) {
		t.Fatal("the holding's fence did not break it")
	}
	wantBroken(mine, fence)
	second := other.wantServed(next)
	wantErr(t, p.extend(mine, time.Minute), dibs.ErrLost)
	if p.release(mine, fence) || end("n", fence) {
		t.Error("broken twice")
	}
	p.wantHolder("n", next.Token)
	other.mustRelease(next, second)
	p.wantHolder("n", "")

	// A holding that was extended is known by its fence, whatever else was taken.
	old := p.newRequest("o")
	old.Token = "req-1" // the store cannot read the client in it
	fence = p.mustAcquire(old).Fence
	hold := driver.ExtendRequest{Name: "o", Token: old.Token, Client: old.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{hold})[0]; err != nil {
		t.Fatal(err)
	}
	if h := p.state("o").Holders[0]; h.Fence != fence {
		t.Errorf("holder %+v, want fence %d", h, fence)
	}
	if end("o", fence-1) || end("o", fence+1) {
		t.Fatal("another fence broke an extended holding")
	}
	if !end("o", fence) {
		t.Error("an extended holding was not broken")
	}
	wantBroken(old, fence)
	p.wantHolder("o", "")

	// Nor is it known any more by one that it had before.
	asked := p.newRequest("q")
	fence = p.mustAcquire(asked).Fence
	newer := p.mustAcquire(asked).Fence
	hold = driver.ExtendRequest{Name: "q", Token: asked.Token, Client: asked.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{hold})[0]; err != nil { // sent before it was asked again
		t.Fatal(err)
	}
	if newer > fence && end("q", fence) {
		t.Error("an older fence broke it")
	}
	if !end("q", newer) {
		t.Error("the newer fence did not break it")
	}
	wantBroken(asked, newer)
	turned := p.newWriter("r")
	fence = p.mustAcquire(turned).Fence
	hold = driver.ExtendRequest{Name: "r", Token: turned.Token, Client: turned.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(operationContext(t), []driver.ExtendRequest{hold})[0]; err != nil {
		t.Fatal(err)
	}
	p.mustResize(turned, 1, driver.Unlimited)
	newer = p.mustResize(turned, driver.Unlimited, driver.Unlimited).Fence
	if end("r", fence) {
		t.Error("the fence before a change broke it")
	}
	if !end("r", newer) {
		t.Error("the fence after a change did not break it")
	}
	wantBroken(turned, newer)

	// Of several parts, the one.
	one, two := p.newShared("p", 1, 2), p.newShared("p", 1, 2)
	p.mustAcquire(one)
	fence = p.mustAcquire(two).Fence
	third := other.newShared("p", 1, 2)
	other.mustQueue(third, 1)
	if !end("p", fence) {
		t.Fatal("a part was not broken")
	}
	wantBroken(two, fence)
	other.wantGranted(third)
	if err := p.extend(one, time.Minute); err != nil {
		t.Errorf("the other part: %v", err)
	}
}

func inspectShared(t *testing.T, s driver.Store) {
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
	for i, want := range []dibs.Holder{{Token: one.Token, Weight: 1, Fence: f1}, {Token: two.Token, Label: "backup", Weight: 3, Fence: f2}} {
		have := state.Holders[i]
		left := have.Remaining
		have.Remaining = 0
		if have != want || left <= 0 || left > time.Hour {
			t.Errorf("holder %d: %+v, %v left; want %+v", i, have, left, want)
		}
	}
	names, err := s.List(t.Context(), "*")
	if err != nil || len(names) != 1 {
		t.Errorf("list: %q, %v", names, err)
	}
}

func sharedClients(t *testing.T, s driver.Store) {
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
					err := rw.RDo(t.Context(), func(context.Context) error {
						readers.Add(1)
						defer readers.Add(-1)
						if writers.Load() > 0 {
							t.Error("a reader beside a writer")
						}
						return nil
					})
					err = errors.Join(err, rw.Do(t.Context(), func(context.Context) error {
						defer writers.Add(-1)
						if writers.Add(1) > 1 || readers.Load() > 0 {
							t.Error("a writer beside others")
						}
						return nil
					}))
					n := i%permits + 1
					lease, failed := c.Semaphore("sem", permits).Acquire(t.Context(), n)
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
