package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

func exclusion(t *testing.T, s dibs.Store) {
	const claims = 50
	p := mute(t, s)
	var held atomic.Int32
	var group sync.WaitGroup
	for range claims {
		c := p.claim("n")
		c.Queue, c.Until = false, time.Now().Add(patience)
		group.Go(func() {
			a, err := s.Acquire(t.Context(), c)
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			if a.Held {
				held.Add(1)
			}
		})
	}
	group.Wait()
	if n := held.Load(); n != 1 {
		t.Fatalf("%d of %d claims were granted, want 1", n, claims)
	}
}

func idempotent(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	c := p.claim("n")
	first := p.take(c)
	c.TTL = ttl
	again := p.take(c)
	if again.Fence < first.Fence {
		t.Errorf("fence %d after %d", again.Fence, first.Fence)
	}
	state, err := s.Inspect(within(t), "n")
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Remaining < time.Minute/2 {
		t.Errorf("after asking again with a shorter TTL: %+v, %v: want most of a minute left", state, err)
	}
	p.free(c, again.Fence)
	if h := p.holder("n"); h != "" {
		t.Errorf("still held by %s: one release frees however many acquires", h)
	}
	// A place in the queue is kept, too.
	holder := p.claim("n")
	p.take(holder)
	first = p.wait(c, 1)
	p.wait(p.claim("n"), 2)
	if again := p.wait(c, 1); again.Ticket != first.Ticket {
		t.Errorf("ticket %d after %d: asking again lost the place", again.Ticket, first.Ticket)
	}
}

func ownerOnly(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	mine, other := p.claim("n"), p.claim("n")
	fence := p.take(mine).Fence
	if p.release(other, fence) {
		t.Error("a stranger's release reports true")
	}
	wantErr(t, p.extend(other, time.Hour), dibs.ErrLost)
	part := mine
	part.Token = mine.Token[:len(mine.Token)-1]
	if p.release(part, fence) {
		t.Error("a release with part of the token reports true")
	}
	p.wantHolder("n", mine.Token)
	if err := p.extend(mine, time.Minute); err != nil {
		t.Errorf("extend by the holder: %v", err)
	}
	p.free(mine, fence)
	if p.release(mine, fence) {
		t.Error("a second release reports true")
	}
}

func expiry(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	mine, other := p.claim("n"), p.claim("n")
	mine.TTL, other.Queue = ttl, false
	begin := time.Now()
	p.take(mine)
	due := time.Now().Add(ttl)
	a := p.ask(other)
	if time.Since(begin) < ttl && (a.Held || a.Holder != mine.Token) || a.Remaining > ttl {
		t.Fatalf("%+v while another holds", a)
	}
	p.becomes(other, due)
	if took := time.Since(begin); took < ttl {
		t.Errorf("free after %v, want the TTL of %v", took, ttl)
	}
	if p.release(mine, 0) {
		t.Error("the release of an expired lease reports true")
	}
	p.wantHolder("n", other.Token)
}

// fifo starts again with fewer waiters if the machine is so slow that their queue entries
// expire before the last one is served.
func fifo(t *testing.T, s dibs.Store) {
	for waiters := 64; !inOrder(t, s, fmt.Sprint("n", waiters), waiters); waiters /= 2 {
		if waiters <= 2 {
			t.Fatalf("%d waiters were not served within %v", waiters, dibs.ClaimTTL)
		}
	}
}

// inOrder returns false if it took so long that the result means nothing.
func inOrder(t *testing.T, s dibs.Store, name string, waiters int) bool {
	var crowd []*party
	for range 4 {
		crowd = append(crowd, join(t, s))
	}
	holder := mute(t, s)
	begin := time.Now()
	slow := func() bool { return time.Since(begin) > dibs.ClaimTTL*3/4 }
	c := holder.claim(name)
	fence := holder.take(c).Fence
	claims := make([]dibs.Claim, waiters)
	for i := range claims {
		one := crowd[i%len(crowd)]
		claims[i] = one.claim(name)
		a := one.ask(claims[i])
		switch {
		case slow():
			return false
		case a.Held || a.Ticket == 0 || a.Position != i+1:
			t.Fatalf("acquire %q: %+v, want to wait at position %d", name, a, i+1)
		}
	}
	for i, next := range claims {
		holder.free(c, fence)
		if slow() {
			return false
		}
		e := crowd[i%len(crowd)].event()
		switch {
		case slow():
			return false
		case e.Kind != dibs.Granted || e.Token != next.Token:
			t.Fatalf("event %+v, want the grant of %s", e, next.Token)
		case e.Fence <= fence:
			t.Fatalf("fence %d after %d", e.Fence, fence)
		}
		c, fence = next, e.Fence
	}
	holder.free(c, fence)
	holder.wantHolder(name, "")
	return true
}

func deadWaiter(t *testing.T, s dibs.Store) {
	holder, dead, live := mute(t, s), join(t, s), join(t, s)
	h, d, l := holder.claim("n"), dead.claim("n"), live.claim("n")
	fence := holder.take(h).Fence
	dead.wait(d, 1)
	live.wait(l, 2)
	for range 6 { // the live one shows that it is, beyond the claim TTL
		time.Sleep(dibs.ClaimTTL / 5)
		live.ask(l)
	}
	holder.free(h, fence)
	live.granted(l)
	dead.silent(50 * time.Millisecond)
	holder.wantHolder("n", l.Token)
}

func deadHead(t *testing.T, s dibs.Store) {
	holder, dead, live := mute(t, s), join(t, s), mute(t, s)
	h, d, l := holder.claim("n"), dead.claim("n"), live.claim("n")
	d.TTL, l.Queue = time.Hour, false
	fence := holder.take(h).Fence
	dead.wait(d, 1)
	begin := time.Now()
	holder.free(h, fence)
	dead.granted(d) // and does nothing with it
	live.becomes(l, time.Now().Add(dibs.ClaimTTL))
	if took := time.Since(begin); took < dibs.ClaimTTL-100*time.Millisecond {
		t.Errorf("free after %v, before the claim TTL", took)
	}
}

func oneWakes(t *testing.T, s dibs.Store) {
	holder := mute(t, s)
	h := holder.claim("n")
	fence := holder.take(h).Fence
	crowd := []*party{join(t, s), join(t, s), join(t, s)}
	var claims []dibs.Claim
	for i, p := range crowd {
		claims = append(claims, p.claim("n"))
		p.wait(claims[i], i+1)
	}
	holder.free(h, fence)
	crowd[0].granted(claims[0])
	holder.wantHolder("n", claims[0].Token)
	for _, p := range crowd[1:] {
		p.silent(50 * time.Millisecond)
	}
}

func fencesGrow(t *testing.T, s dibs.Store) {
	p := join(t, s)
	var last uint64
	grew := func(how string, fence uint64) {
		t.Helper()
		if fence <= last {
			t.Fatalf("fence %d after %d, %s", fence, last, how)
		}
		last = fence
	}
	for range 20 {
		c := p.claim("n")
		grew("acquired", p.obtain(c))
		next := p.claim("n")
		p.wait(next, 1)
		p.free(c, last)
		grew("handed on", p.granted(next).Fence)
		third := p.claim("n")
		p.wait(third, 1)
		p.free(next, 0) // by one who does not know the fence
		grew("handed on by a stranger to the fence", p.granted(third).Fence)
		if err := p.s.Abandon(t.Context(), third); err != nil {
			t.Fatal(err)
		}
	}
	c := p.claim("n")
	c.TTL = ttl
	grew("acquired", p.take(c).Fence)
	time.Sleep(ttl + 20*time.Millisecond)
	grew("expired", p.take(p.claim("n")).Fence)
}

func abandon(t *testing.T, s dibs.Store) {
	p := join(t, s)
	held, first, second := p.claim("n"), p.claim("n"), p.claim("n")
	p.take(held)
	p.wait(first, 1)
	p.wait(second, 2)
	for _, c := range []dibs.Claim{first, held, held} { // also twice
		if err := s.Abandon(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	p.granted(second)
	p.wantHolder("n", second.Token)
	if err := s.Abandon(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	p.wantHolder("n", second.Token)
	if err := s.Abandon(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if state, err := s.Inspect(within(t), "n"); err != nil || len(state.Holders) > 0 || state.Waiting > 0 {
		t.Errorf("left behind: %+v, %v", state, err)
	}
}

func extend(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	var holds []dibs.Hold
	var claims []dibs.Claim
	for i := range 250 {
		c := p.claim(fmt.Sprintf("n%d", i))
		claims = append(claims, c)
		holds = append(holds, dibs.Hold{Name: c.Name, Token: c.Token, TTL: time.Minute})
	}
	for i, c := range claims {
		switch i % 3 {
		case 0:
			c.TTL = 25 * time.Second
			p.take(c)
		case 1:
			other := p.claim(c.Name)
			p.take(other)
		}
	}
	for i, err := range s.Extend(within(t), holds) {
		if held := i%3 == 0; held && err != nil || !held && !errors.Is(err, dibs.ErrLost) {
			t.Fatalf("hold %d: %v", i, err)
		}
	}
	if h := p.holder("n2"); h != "" {
		t.Errorf("an extension made %s a holder", h)
	}
	if err := p.extend(claims[0], time.Second); err != nil {
		t.Fatal(err)
	}
	state, err := s.Inspect(within(t), "n0")
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Remaining < 30*time.Second {
		t.Errorf("%+v, %v: an extension for a second has shortened a minute", state, err)
	}
	c := p.claim("expires")
	c.TTL = ttl
	p.take(c)
	time.Sleep(ttl + 20*time.Millisecond)
	wantErr(t, p.extend(c, time.Minute), dibs.ErrLost)
	p.take(p.claim("expires"))
}

func missedPush(t *testing.T, s dibs.Store) {
	holder, deaf := mute(t, s), mute(t, s)
	h, d := holder.claim("n"), deaf.claim("n")
	fence := holder.take(h).Fence
	deaf.wait(d, 1)
	holder.free(h, fence)
	if a := deaf.take(d); a.Fence <= fence {
		t.Errorf("fence %d after %d", a.Fence, fence)
	}
	deaf.wantHolder("n", d.Token)
}

func ticket(t *testing.T, s dibs.Store) {
	p := join(t, s)
	h, first, second := p.claim("n"), p.claim("n"), p.claim("n")
	fence := p.take(h).Fence
	a := p.wait(first, 1)
	p.wait(second, 2)
	p.free(h, fence)
	e := p.granted(first)
	if e.Ticket != a.Ticket {
		t.Errorf("granted with ticket %d, asked with %d", e.Ticket, a.Ticket)
	}
	b := p.wait(second, 1)
	p.free(first, e.Fence)
	if e := p.granted(second); e.Ticket != b.Ticket {
		t.Errorf("granted with ticket %d, asked with %d", e.Ticket, b.Ticket)
	}
}

func newPlace(t *testing.T, s dibs.Store) {
	p := join(t, s)
	h, c := p.claim("n"), p.claim("n")
	fence := p.take(h).Fence
	c.TTL = 50 * time.Millisecond // so that a hand-off is soon over
	before := p.wait(c, 1)
	p.free(h, fence)
	p.granted(c)
	next := p.claim("n")
	next.Queue = false
	p.becomes(next, time.Now().Add(c.TTL))
	if after := p.wait(c, 1); after.Ticket <= before.Ticket {
		t.Errorf("ticket %d after %d", after.Ticket, before.Ticket)
	}
}

func tryDoesNotQueue(t *testing.T, s dibs.Store) {
	p := join(t, s)
	h, try, first := p.claim("n"), p.claim("n"), p.claim("n")
	try.Queue = false
	fence := p.take(h).Fence
	if a := p.ask(try); a.Held || a.Ticket != 0 || a.Position != 0 || a.Holder != h.Token {
		t.Errorf("%+v while %s holds", a, h.Token)
	}
	p.wait(first, 1)
	p.free(h, fence)
	p.granted(first)
	if a := p.ask(try); a.Held {
		t.Error("a try overtook")
	}
}

func expiredWithWaiters(t *testing.T, s dibs.Store) {
	p, q := join(t, s), join(t, s)
	for try := 1; ; try++ {
		name := fmt.Sprintf("n%d", try)
		h, first, late := p.claim(name), p.claim(name), q.claim(name)
		h.TTL = ttl / 2
		begin := time.Now()
		fence := p.take(h).Fence
		a := p.ask(first)
		if a.Held && time.Since(begin) >= h.TTL && try < tries {
			continue
		}
		if a.Held || a.Ticket == 0 || a.Position != 1 {
			t.Fatalf("%+v, want to wait", a)
		}
		time.Sleep(h.TTL + 50*time.Millisecond)
		if a := q.ask(late); a.Held {
			t.Fatal("a newcomer overtook who waited")
		}
		if e := p.granted(first); e.Fence <= fence || e.Ticket != a.Ticket {
			t.Errorf("%+v after fence %d with ticket %d", e, fence, a.Ticket)
		}
		p.wantHolder(name, first.Token)
		return
	}
}

func void(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	p.take(p.claim("warm-up")) // a store may learn a server's clock by it
	c := p.claim("n")
	c.Until = time.Now().Add(-time.Second)
	if a, err := s.Acquire(t.Context(), c); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for a claim whose time is over", a, err)
	}
	h := p.claim("n")
	p.take(h)
	if a, err := s.Acquire(t.Context(), c); !errors.Is(err, dibs.ErrUnavailable) || a.Held {
		t.Errorf("%+v, %v for a claim whose time is over", a, err)
	}
	if state, err := s.Inspect(within(t), "n"); err != nil || state.Waiting != 0 {
		t.Errorf("%+v, %v: it queues", state, err)
	}
}

func voidRelease(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	h := p.claim("n")
	p.take(h)
	before := time.Now().Add(-time.Second)
	if freed, err := s.Release(t.Context(), dibs.Release{Name: "n", Token: h.Token, Until: before}); !errors.Is(err, dibs.ErrUnavailable) || freed {
		t.Errorf("%v, %v for a release whose time is over", freed, err)
	}
	late := h
	late.Until = before
	wantErr(t, s.Abandon(t.Context(), late), dibs.ErrUnavailable)
	p.wantHolder("n", h.Token)
	p.free(h, 0)
}

func keep(t *testing.T, s dibs.Store) {
	// A store of several nodes may lose an event: the waiter's entry may reach some of
	// them after the release. It does not lose three in a row.
	for _, name := range []string{"n", "o", "p"} {
		if keepOn(t, s, name) {
			return
		}
	}
	t.Error("three times no event: the first waiter is not told to ask again")
}

// keepOn reports whether the first waiter was told to ask again.
func keepOn(t *testing.T, s dibs.Store, name string) bool {
	p := join(t, s)
	h, first := p.claim(name), p.claim(name)
	fence := p.take(h).Fence
	p.wait(first, 1)
	begin := time.Now()
	freed, err := s.Release(t.Context(), dibs.Release{Name: name, Token: h.Token, Fence: fence, Keep: ttl})
	if err != nil || !freed {
		t.Fatalf("release: %v, %v", freed, err)
	}
	select {
	case e := <-p.events:
		if e.Kind != dibs.Look || e.Token != first.Token {
			t.Fatalf("event %+v, want Look", e)
		}
	case <-time.After(2 * time.Second):
		return false
	}
	due := time.Now().Add(ttl)
	wantOver(p, h, begin.Add(ttl))
	a := p.ask(first)
	if a.Held && time.Since(begin) < ttl || a.Remaining > ttl {
		t.Fatalf("%+v just after a release with Keep", a)
	}
	p.becomes(first, due)
	if took := time.Since(begin); took < ttl-10*time.Millisecond {
		t.Errorf("free after %v, want %v", took, ttl)
	}
	return true
}

// wantOver checks that a claim that was released with Keep holds no more: a renewal
// that was under way must not prolong it. Its name is kept until a certain time.
func wantOver(p *party, c dibs.Claim, kept time.Time) {
	p.t.Helper()
	wantErr(p.t, p.extend(c, time.Hour), dibs.ErrLost)
	if p.reweigh(c, c.Weight, c.Limit).Held {
		p.t.Error("reweigh: held after a release with Keep")
	}
	if p.release(c, 0) {
		p.t.Error("a second release reports true")
	}
	if h := p.holder(c.Name); h == c.Token || h == "" && time.Now().Before(kept) {
		p.t.Errorf("held by %q, want to see that %s is kept", h, c.Token)
	}
}

func inspect(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	if state, err := s.Inspect(within(t), "n"); err != nil || len(state.Holders) != 0 || state.Waiting != 0 || state.Name != "n" {
		t.Errorf("of a free name: %+v, %v", state, err)
	}
	h := p.claim("n")
	h.Token += ":backup"
	fence := p.take(h).Fence
	first, second := p.claim("n"), p.claim("n")
	p.wait(first, 1)
	p.wait(second, 2)
	state, err := s.Inspect(within(t), "n")
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Holders) != 1 || state.Holders[0].Token != h.Token {
		t.Errorf("holders %+v, want %s", state.Holders, h.Token)
	} else if left := state.Holders[0].Remaining; left <= 0 || left > h.TTL {
		t.Errorf("%v left of %v", left, h.TTL)
	}
	if state.Waiting != 2 || len(state.Waiters) != 2 || state.Waiters[0].Token != first.Token || state.Waiters[1].Token != second.Token {
		t.Errorf("waiters %+v (%d), want two", state.Waiters, state.Waiting)
	}
	if state.Fence < fence {
		t.Errorf("fence %d, granted %d", state.Fence, fence)
	}
	for _, name := range []string{"m*", "m1"} {
		p.take(p.claim(name))
	}
	for pattern, want := range map[string]int{"*": 3, "m*": 2, `m\*`: 1, "m?": 2, "[n-z]": 1, "x*": 0} {
		names, err := s.List(t.Context(), pattern)
		if err != nil || len(names) != want {
			t.Errorf("list %q: %q, %v: want %d", pattern, names, err, want)
		}
	}
}

func badNames(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	for _, name := range []string{"", strings.Repeat("n", dibs.MaxName+1), "not\xffutf8"} {
		c := p.claim(name)
		_, err := s.Acquire(t.Context(), c)
		wantErr(t, err, dibs.ErrInvalid)
		_, err = s.Inspect(within(t), name)
		wantErr(t, err, dibs.ErrInvalid)
	}
	for _, bad := range []func(*dibs.Claim){
		func(c *dibs.Claim) { c.Weight = 0 },
		func(c *dibs.Claim) { c.Weight = 2 },
		func(c *dibs.Claim) { c.TTL = 0 },
	} {
		c := p.claim("n")
		bad(&c)
		_, err := s.Acquire(t.Context(), c)
		wantErr(t, err, dibs.ErrInvalid)
	}
	p.wantHolder("n", "")
}

func anyName(t *testing.T, s dibs.Store) {
	p := join(t, s)
	claims := make(map[string]dibs.Claim)
	for _, name := range oddNames() {
		c := p.claim(name)
		p.take(c)
		claims[name] = c
	}
	for name, c := range claims {
		p.wantHolder(name, c.Token)
		if err := p.extend(c, time.Minute); err != nil {
			t.Errorf("extend %q: %v", name, err)
		}
		next := p.claim(name)
		p.wait(next, 1)
		p.free(c, 0)
		p.granted(next)
		p.free(next, 0)
		p.wantHolder(name, "")
	}
}

func endedContext(t *testing.T, s dibs.Store) {
	p := mute(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := p.claim("n")
	c.Until = time.Now().Add(patience)
	begin := time.Now()
	_, err := s.Acquire(ctx, c)
	wantErr(t, err, dibs.ErrUnavailable)
	_, err = s.Release(ctx, dibs.Release{Name: "n", Token: c.Token, Until: c.Until})
	wantErr(t, err, dibs.ErrUnavailable)
	wantErr(t, s.Abandon(ctx, c), dibs.ErrUnavailable)
	for _, err := range s.Extend(ctx, []dibs.Hold{{Name: "n", Token: c.Token, TTL: time.Minute}}) {
		wantErr(t, err, dibs.ErrUnavailable)
	}
	if took := time.Since(begin); took > 5*time.Second { // who waits does so until its time is over
		t.Errorf("took %v", took)
	}
}

func clients(t *testing.T, s dibs.Store) {
	const processes, workers, rounds = 4, 8, 10
	var inside, total atomic.Int32
	var last atomic.Uint64
	var group sync.WaitGroup
	for range processes {
		c := dibs.New(s, dibs.TTL(time.Minute), dibs.Timeout(patience))
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		for range workers {
			group.Go(func() {
				for range rounds {
					err := c.Mutex("n").Do(t.Context(), func(ctx context.Context) error {
						if inside.Add(1) != 1 {
							t.Error("two inside")
						}
						if f := dibs.Fence(ctx); f <= last.Swap(f) {
							t.Error("a fence went back")
						}
						total.Add(1)
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	group.Wait()
	if n := total.Load(); n != processes*workers*rounds {
		t.Errorf("%d served, want %d", n, processes*workers*rounds)
	}
}
