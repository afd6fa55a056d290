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

func partCases() []Case {
	return []Case{
		{"limit", "the weights that are held are never more than the limit", limit},
		{"alone", "who holds all holds alone: no part beside it, and it beside no part", holdsAlone},
		{"own limit", "each claim goes by its own limit, whatever those had who hold", ownLimit},
		{"parts expire", "each part ends with its own TTL, while others are extended", partsExpire},
		{"parts are owned", "a part is released, extended and asked for again by its own token only", partsAreOwned},
		{"enter together", "a release serves all at the head of the line that fit, in order", enterTogether},
		{"heavy head", "who does not fit yet is not overtaken by those behind it", heavyHead},
		{"heavy head leaves", "when a head that does not fit gives up or dies, those behind it are served", heavyHeadLeaves},
		{"keep a part", "a release with Keep leaves the part taken for that long", keepPart},
		{"reweigh", "a holding gets smaller and serves who fits, and larger only if there is room", reweigh},
		{"reweigh takes nothing", "reweigh takes nothing that the token does not hold, and nothing after its time", reweighTakesNothing},
		{"break", "the holding with a fence ends, its client and the next in line are told; no other holding does", breakHolding},
		{"parts are told", "inspect tells each part: token, weight, fence, time left", partsAreTold},
		{"clients of parts", "many clients read and write a name, and share permits, within its limits", clientsOfParts},
	}
}

// counts skips the test if the store cannot count permits.
func counts(t *testing.T, s driver.Store) {
	t.Helper()
	c := mute(t, s).claim("permits")
	c.Limit, c.Queue, c.Until = 2, false, time.Now().Add(patience)
	if _, err := s.Acquire(t.Context(), c); errors.Is(err, dibs.ErrInvalid) {
		t.Skipf("the store does not count: %v", err)
	}
	if err := s.Cancel(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// share returns a claim for a part.
func (p *party) share(name string, weight, limit int) driver.AcquireRequest {
	if limit != driver.Unlimited && weight < limit && !p.counts {
		counts(p.t, p.s)
		p.counts = true
	}
	c := p.claim(name)
	c.Weight, c.Limit = weight, limit
	return c
}

func (p *party) read(name string) driver.AcquireRequest { return p.share(name, 1, driver.Unlimited) }
func (p *party) write(name string) driver.AcquireRequest {
	return p.share(name, driver.Unlimited, driver.Unlimited)
}

func (p *party) try(c driver.AcquireRequest) bool {
	p.t.Helper()
	c.Queue = false
	return p.ask(c).Held
}

func (p *party) abandon(c driver.AcquireRequest) {
	p.t.Helper()
	if err := p.s.Cancel(p.t.Context(), c); err != nil {
		p.t.Fatalf("abandon %q: %v", c.Name, err)
	}
}

func (p *party) reweigh(c driver.AcquireRequest, weight, limit int) driver.AcquireReply {
	p.t.Helper()
	c.Weight, c.Limit, c.Until = weight, limit, time.Now().Add(patience)
	a, err := p.s.Resize(p.t.Context(), c)
	if err != nil {
		p.t.Fatalf("reweigh %q: %v", c.Name, err)
	}
	return a
}

func (p *party) state(name string) dibs.State {
	p.t.Helper()
	state, err := p.s.Inspect(within(p.t), name)
	if err != nil {
		p.t.Fatalf("inspect %q: %v", name, err)
	}
	return state
}

func limit(t *testing.T, s driver.Store) {
	p := mute(t, s)
	p.take(p.claim("warm-up"))
	var held atomic.Int32
	var group sync.WaitGroup
	for i := range 60 {
		c := p.share("n", i%4+1, 10)
		c.Queue, c.Until = false, time.Now().Add(patience)
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

func holdsAlone(t *testing.T, s driver.Store) {
	p := mute(t, s)
	reader, writer, mutex, permit := p.read("n"), p.write("n"), p.claim("n"), p.share("n", 1, 9)
	for _, alone := range []driver.AcquireRequest{writer, mutex, p.share("n", 9, 9)} {
		fence := p.take(alone).Fence
		for _, other := range []driver.AcquireRequest{reader, permit, p.write("n"), p.claim("n")} {
			if p.try(other) {
				t.Fatalf("%d of %d entered beside %d of %d", other.Weight, other.Limit, alone.Weight, alone.Limit)
			}
		}
		p.free(alone, fence)
	}
	p.take(reader)
	p.take(permit)
	for _, alone := range []driver.AcquireRequest{writer, mutex} {
		if p.try(alone) {
			t.Fatalf("%d of %d entered beside parts", alone.Weight, alone.Limit)
		}
	}
	p.free(reader, 0)
	p.free(permit, 0)
	if !p.try(mutex) {
		t.Error("the name is not free after the last part was released")
	}
}

func ownLimit(t *testing.T, s driver.Store) {
	p := mute(t, s)
	old := []driver.AcquireRequest{p.share("n", 1, 2), p.share("n", 1, 2)}
	for _, c := range old {
		p.take(c)
	}
	if p.try(p.share("n", 1, 2)) {
		t.Error("three of two")
	}
	more := p.share("n", 2, 4)
	p.take(more)
	p.free(old[0], 0)
	if p.try(p.share("n", 1, 2)) {
		t.Error("an old limit of two, with three held")
	}
	if !p.try(p.share("n", 1, 4)) {
		t.Error("a new limit of four, with three held, has no room")
	}
}

func partsExpire(t *testing.T, s driver.Store) {
	p := mute(t, s)
	for try := 1; !onePartExpires(p, fmt.Sprintf("n%d", try), try == tries); try++ {
		t.Logf("the machine stood still for %v", ttl)
	}
	// As many parts as may be, all dead, hinder nobody, nor does what they leave.
	for range 20 {
		c := p.share("n", 1, 20)
		c.TTL = 20 * time.Millisecond
		p.take(c)
	}
	time.Sleep(60 * time.Millisecond)
	p.take(p.share("n", 19, 20))
	if p.try(p.share("n", 2, 20)) {
		t.Error("21 of 20")
	}
	if !p.try(p.share("n", 1, 20)) {
		t.Error("dead parts are counted")
	}
}

// onePartExpires returns false if the other one may have expired because the machine
// stood still.
func onePartExpires(p *party, name string, last bool) bool {
	p.t.Helper()
	dies, lives, writer := p.read(name), p.read(name), p.write(name)
	dies.TTL, lives.TTL = ttl, ttl
	p.take(dies)
	over := time.Now().Add(ttl + 50*time.Millisecond)
	extended := time.Now()
	stoodStill := func() bool { return !last && time.Since(extended) >= ttl }
	p.take(lives)
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
	a := p.ask(writer)
	if stoodStill() {
		return false
	}
	if state.Holding != 1 || len(state.Holders) != 1 || state.Holders[0].Token != lives.Token {
		p.t.Fatalf("%+v: want only the one that was extended", state)
	}
	if a.Held || a.Position != 1 || a.Holder != lives.Token || a.Remaining <= 0 || a.Remaining > ttl {
		p.t.Errorf("%+v, want to wait, and to be told of %s and its time", a, lives.Token)
	}
	p.becomes(writer, time.Now().Add(ttl))
	return true
}

func partsAreOwned(t *testing.T, s driver.Store) {
	p := mute(t, s)
	mine, other := p.share("n", 2, 4), p.share("n", 2, 4)
	first := p.take(mine)
	if p.release(other, first.Fence) {
		t.Error("a stranger's release reports true")
	}
	wantErr(t, p.extend(other, time.Hour), dibs.ErrLost)
	mine.TTL = ttl
	if again := p.take(mine); again.Fence < first.Fence {
		t.Errorf("fence %d after %d", again.Fence, first.Fence)
	}
	if err := p.extend(mine, ttl); err != nil {
		t.Errorf("extend: %v", err)
	}
	state := p.state("n")
	if state.Holding != 1 || state.Holders[0].Weight != 2 || state.Holders[0].Remaining < time.Minute/2 {
		t.Errorf("after asking again, and extending, with a shorter TTL: %+v", state)
	}
	p.take(other)
	if p.try(p.share("n", 1, 4)) {
		t.Error("asking again made room")
	}
	p.free(mine, 0)
	if p.release(mine, 0) {
		t.Error("a second release reports true")
	}
	if !p.try(p.share("n", 1, 4)) {
		t.Error("no room after a release")
	}
	if err := p.extend(other, time.Minute); err != nil {
		t.Errorf("extend: %v", err)
	}
}

func enterTogether(t *testing.T, s driver.Store) {
	holder := mute(t, s)
	h := holder.write("n")
	fence := holder.take(h).Fence
	var crowd []*party
	var claims []driver.AcquireRequest
	for i := range 8 {
		crowd = append(crowd, join(t, s))
		c := crowd[i].read("n")
		if i == 5 {
			c = crowd[i].write("n")
		}
		claims = append(claims, c)
		crowd[i].wait(c, i+1)
	}
	holder.free(h, fence)
	for i := range 5 {
		if e := crowd[i].granted(claims[i]); e.Fence <= fence {
			t.Errorf("fence %d after %d", e.Fence, fence)
		}
	}
	for i := 5; i < 8; i++ {
		crowd[i].silent(30 * time.Millisecond)
	}
	for i := range 5 {
		crowd[5].silent(0)
		crowd[i].free(claims[i], 0)
	}
	fence = crowd[5].granted(claims[5]).Fence
	crowd[6].silent(30 * time.Millisecond)
	crowd[5].free(claims[5], fence)
	crowd[6].granted(claims[6])
	crowd[7].granted(claims[7])
	if n := holder.state("n").Holding; n != 2 {
		t.Errorf("%d hold, want 2", n)
	}
}

func heavyHead(t *testing.T, s driver.Store) {
	p := join(t, s)
	held := []driver.AcquireRequest{p.share("n", 1, 4), p.share("n", 1, 4), p.share("n", 1, 4)}
	for _, c := range held {
		p.take(c)
	}
	heavy, light := p.share("n", 3, 4), p.share("n", 1, 4)
	p.wait(heavy, 1)
	p.wait(light, 2)
	if p.try(p.share("n", 1, 4)) {
		t.Error("a try overtook")
	}
	p.free(held[0], 0)
	p.silent(30 * time.Millisecond)
	p.wait(light, 2) // asks again, and still does not overtake
	p.free(held[1], 0)
	p.granted(heavy)
	p.silent(30 * time.Millisecond) // one and three are four
	p.free(held[2], 0)
	p.granted(light)
}

func heavyHeadLeaves(t *testing.T, s driver.Store) {
	p := join(t, s)
	p.take(p.read("n"))
	writer, reader := p.write("n"), p.read("n")
	p.wait(writer, 1)
	p.wait(reader, 2)
	p.abandon(writer)
	p.granted(reader)

	dead := mute(t, s)
	writer, reader = dead.write("n"), p.read("n")
	dead.wait(writer, 1)
	p.becomes(reader, time.Now().Add(driver.WaiterTTL))
}

func keepPart(t *testing.T, s driver.Store) {
	p := join(t, s)
	mine, other := p.share("n", 2, 3), p.share("n", 1, 3)
	p.take(mine)
	p.take(other)
	next := p.share("n", 2, 3)
	p.wait(next, 1)
	begin := time.Now()
	freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: mine.Token, Reserve: ttl})
	if err != nil || !freed {
		t.Fatalf("release: %v, %v", freed, err)
	}
	wantErr(t, p.extend(mine, time.Hour), dibs.ErrLost)
	if p.release(mine, 0) {
		t.Error("a second release reports true")
	}
	p.becomes(next, time.Now().Add(ttl))
	if took := time.Since(begin); took < ttl-10*time.Millisecond {
		t.Errorf("free after %v, want %v", took, ttl)
	}
}

func reweigh(t *testing.T, s driver.Store) {
	p := join(t, s)
	mine, reader, writer := p.write("n"), p.read("n"), p.write("n")
	fence := p.take(mine).Fence
	p.wait(reader, 1)
	p.wait(writer, 2)
	down := p.reweigh(mine, 1, driver.Unlimited)
	if !down.Held || down.Fence <= fence {
		t.Fatalf("downgrade: %+v after fence %d", down, fence)
	}
	p.granted(reader)
	p.silent(30 * time.Millisecond)
	if again := p.reweigh(mine, 1, driver.Unlimited); !again.Held {
		t.Errorf("asked again: %+v", again)
	}
	if up := p.reweigh(mine, driver.Unlimited, driver.Unlimited); up.Held || up.Holder != reader.Token {
		t.Fatalf("upgrade beside a reader: %+v, want to be told of it", up)
	}
	if n := p.state("n").Holding; n != 2 {
		t.Fatalf("%d hold after an upgrade that was refused, want 2", n)
	}
	p.free(reader, 0)
	up := p.reweigh(mine, driver.Unlimited, driver.Unlimited)
	if !up.Held || up.Fence <= down.Fence {
		t.Fatalf("upgrade: %+v after fence %d", up, down.Fence)
	}
	if again := p.reweigh(mine, driver.Unlimited, driver.Unlimited); !again.Held {
		t.Errorf("asked again: %+v", again)
	}
	if p.try(p.read("n")) {
		t.Error("a reader entered beside an upgraded one")
	}
	if left := p.state("n").Holders[0].Remaining; left < time.Minute/2 {
		t.Errorf("%v left of a minute", left)
	}
	p.free(mine, up.Fence)
	p.granted(writer)
	p.free(writer, 0)

	permits := p.share("n", 1, 4)
	p.take(permits)
	p.take(p.share("n", 2, 4))
	if a := p.reweigh(permits, 3, 4); a.Held {
		t.Error("five of four")
	}
	if a := p.reweigh(permits, 2, 4); !a.Held {
		t.Error("four of four is refused")
	}
	if p.try(p.share("n", 1, 4)) {
		t.Error("what was added is not counted")
	}
	p.reweigh(permits, 1, 4)
	if !p.try(p.share("n", 1, 4)) {
		t.Error("what was given up is counted")
	}
}

func reweighTakesNothing(t *testing.T, s driver.Store) {
	p := mute(t, s)
	p.take(p.claim("warm-up"))
	for _, c := range []driver.AcquireRequest{p.read("n"), p.write("n")} {
		if a := p.reweigh(c, c.Weight, c.Limit); a.Held {
			t.Errorf("a free name: %+v", a)
		}
	}
	other := p.write("n")
	p.take(other)
	if a := p.reweigh(p.read("n"), 1, driver.Unlimited); a.Held || a.Holder != other.Token {
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

func breakHolding(t *testing.T, s driver.Store) {
	p, other := join(t, s), join(t, s)
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
		if e := p.event(); e.Kind != driver.EventRevoked || e.Token != c.Token || e.Fence != fence {
			t.Fatalf("event %+v, want that %s with fence %d was broken", e, c.Token, fence)
		}
	}
	if end("n", 7) {
		t.Error("a free name was broken")
	}
	mine, next := p.claim("n"), other.claim("n")
	fence := p.take(mine).Fence
	other.wait(next, 1)
	if end("n", fence-1) || end("n", fence+1) || end("m", fence) {
		t.Fatal("another fence broke it")
	}
	if !end("n", fence) {
		t.Fatal("the holding's fence did not break it")
	}
	wantBroken(mine, fence)
	second := other.served(next)
	wantErr(t, p.extend(mine, time.Minute), dibs.ErrLost)
	if p.release(mine, fence) || end("n", fence) {
		t.Error("broken twice")
	}
	p.wantHolder("n", next.Token)
	other.free(next, second)
	p.wantHolder("n", "")

	// A holding that was extended is known by its fence, whatever else was taken.
	old := p.claim("o")
	old.Token = "req-1" // the store cannot read the client in it
	fence = p.take(old).Fence
	hold := driver.ExtendRequest{Name: "o", Token: old.Token, Client: old.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(within(t), []driver.ExtendRequest{hold})[0]; err != nil {
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
	asked := p.claim("q")
	fence = p.take(asked).Fence
	newer := p.take(asked).Fence
	hold = driver.ExtendRequest{Name: "q", Token: asked.Token, Client: asked.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(within(t), []driver.ExtendRequest{hold})[0]; err != nil { // sent before it was asked again
		t.Fatal(err)
	}
	if newer > fence && end("q", fence) {
		t.Error("an older fence broke it")
	}
	if !end("q", newer) {
		t.Error("the newer fence did not break it")
	}
	wantBroken(asked, newer)
	turned := p.write("r")
	fence = p.take(turned).Fence
	hold = driver.ExtendRequest{Name: "r", Token: turned.Token, Client: turned.Client, Fence: fence, TTL: time.Minute}
	if err := s.Extend(within(t), []driver.ExtendRequest{hold})[0]; err != nil {
		t.Fatal(err)
	}
	p.reweigh(turned, 1, driver.Unlimited)
	newer = p.reweigh(turned, driver.Unlimited, driver.Unlimited).Fence
	if end("r", fence) {
		t.Error("the fence before a change broke it")
	}
	if !end("r", newer) {
		t.Error("the fence after a change did not break it")
	}
	wantBroken(turned, newer)

	// Of several parts, the one.
	one, two := p.share("p", 1, 2), p.share("p", 1, 2)
	p.take(one)
	fence = p.take(two).Fence
	third := other.share("p", 1, 2)
	other.wait(third, 1)
	if !end("p", fence) {
		t.Fatal("a part was not broken")
	}
	wantBroken(two, fence)
	other.granted(third)
	if err := p.extend(one, time.Minute); err != nil {
		t.Errorf("the other part: %v", err)
	}
}

func partsAreTold(t *testing.T, s driver.Store) {
	p := mute(t, s)
	one, two := p.share("n", 1, 9), p.share("n", 3, 9)
	two.TTL = time.Hour
	two.Token += ":backup"
	f1, f2 := p.take(one).Fence, p.take(two).Fence
	p.wait(p.share("n", 6, 9), 1)
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

func clientsOfParts(t *testing.T, s driver.Store) {
	counts(t, s)
	const processes, workers, rounds, permits = 3, 6, 8, 3
	var readers, writers, taken atomic.Int32
	var group sync.WaitGroup
	for range processes {
		c := dibs.New(s, dibs.TTL(time.Minute), dibs.Timeout(patience))
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
