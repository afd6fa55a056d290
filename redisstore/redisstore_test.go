package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/storetest"
)

const (
	generous = 10 * time.Second
	longest  = time.Hour // of the TTLs in the laws
)

func TestStore(t *testing.T) {
	t.Parallel()
	lawful(t, redistest.Start(t))
}

func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	lawful(t, redistest.StartClusterNode(t), redisstore.Sharded())
}

// lawful runs the conformance suite on one server that all cases share, and looks
// at the keys all the while, and when all is over.
func lawful(t *testing.T, server *redistest.Server, options ...redisstore.Option) {
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			wantKeysThatEnd(t, server)
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	var stores atomic.Int32
	t.Run("law", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) dibs.Store {
			prefix := fmt.Sprintf("%d:", stores.Add(1))
			return open(t, server, append(options, redisstore.Prefix(prefix))...)
		})
	})
	close(over)
	watch.Wait()
	wantKeysThatEnd(t, server)
}

func open(t *testing.T, server *redistest.Server, options ...redisstore.Option) *redisstore.Store {
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	return redisstore.New(conn, options...)
}

// keysOf returns all keys.
func keysOf(t *testing.T, server *redistest.Server) (all []string) {
	t.Helper()
	conn := redistest.Dial(server.Addr())
	defer conn.Close()
	if err := conn.Scan(t.Context(), "*", func(keys []string) { all = append(all, keys...) }); err != nil && t.Context().Err() == nil {
		t.Errorf("scan: %v", err)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

const (
	floors = "dibs:fence:"
	queue  = ":dibs:queue"
	signs  = ":dibs:signs"
	shared = ":dibs:holders"
)

// wantKeysThatEnd checks that each key goes away by itself, but the floors.
func wantKeysThatEnd(t *testing.T, server *redistest.Server) {
	t.Helper()
	conn := redistest.Dial(server.Addr())
	defer conn.Close()
	for _, key := range keysOf(t, server) {
		ttl, err := conn.Call(t.Context(), "PTTL", key)
		if err != nil {
			t.Errorf("PTTL %q: %v", key, err)
			continue
		}
		most := int64(math.MaxInt64)
		switch {
		case strings.HasSuffix(key, queue):
			most = time.Minute.Milliseconds()
		case strings.HasSuffix(key, signs), strings.HasSuffix(key, shared): // a minute longer than what they tell of
			most = (longest + time.Minute).Milliseconds()
		}
		switch ms, _ := ttl.(int64); {
		case ms == -2: // gone by now
		case strings.HasPrefix(key, floors), key == "dibs:born":
			if ms != -1 {
				t.Errorf("%q ends in %d ms", key, ms)
			}
		case ms == -1:
			t.Errorf("%q never ends", key)
		case ms > most:
			t.Errorf("%q ends in %d ms, that is more than %d", key, ms, most)
		}
	}
}

// wantOnlyFloors checks that nothing is left, but signs of life. To remove these
// at each hand-off would cost more than to let them end, within a minute, by
// themselves.
func wantOnlyFloors(t *testing.T, server *redistest.Server, most int) {
	t.Helper()
	keys := keysOf(t, server)
	left := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return strings.HasPrefix(key, floors) || strings.HasSuffix(key, signs) })
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, floors) })
	if len(keys) > most {
		t.Errorf("floors %q, want at most %d", keys, most)
	}
}

// A party makes claims on a store.
type party struct {
	t      *testing.T
	s      dibs.Store
	client string
	seq    uint64
	events chan dibs.Event
}

var parties atomic.Uint64

// mute returns a party that does not listen.
func mute(t *testing.T, s dibs.Store) *party {
	return &party{t: t, s: s, client: fmt.Sprintf("host:%d:test", parties.Add(1))}
}

// join returns a party that listens.
func join(t *testing.T, s dibs.Store) *party {
	t.Helper()
	p := mute(t, s)
	p.events = make(chan dibs.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { _ = s.Watch(ctx, p.client, func(e dibs.Event) { p.events <- e }) })
	t.Cleanup(func() { cancel(); watch.Wait() })
	if e := p.event(); e.Kind != dibs.Up {
		t.Fatalf("first event %+v, want Up", e)
	}
	return p
}

func (p *party) event() dibs.Event {
	p.t.Helper()
	select {
	case e := <-p.events:
		return e
	case <-time.After(generous):
		p.t.Fatal("no event")
		return dibs.Event{}
	}
}

func (p *party) granted(c dibs.Claim) uint64 {
	p.t.Helper()
	e := p.event()
	if e.Kind != dibs.Granted || e.Token != c.Token {
		p.t.Fatalf("event %+v, want the grant of %s", e, c.Token)
	}
	return e.Fence
}

func (p *party) claim(name string) dibs.Claim {
	p.seq++
	return dibs.Claim{
		Name: name, Token: fmt.Sprintf("%s:%d", p.client, p.seq), Client: p.client, Seq: p.seq,
		TTL: time.Minute, Weight: 1, Limit: 1, Queue: true,
	}
}

func (p *party) ask(c dibs.Claim) dibs.Answer {
	p.t.Helper()
	c.Until = time.Now().Add(generous)
	a, err := p.s.Acquire(p.t.Context(), c)
	if err != nil {
		p.t.Fatalf("acquire %q: %v", c.Name, err)
	}
	return a
}

func (p *party) take(c dibs.Claim) uint64 {
	p.t.Helper()
	a := p.ask(c)
	if !a.Held || a.Fence == 0 {
		p.t.Fatalf("acquire %q: %+v, want held", c.Name, a)
	}
	return a.Fence
}

func (p *party) wait(c dibs.Claim) dibs.Answer {
	p.t.Helper()
	a := p.ask(c)
	if a.Held || a.Ticket == 0 {
		p.t.Fatalf("acquire %q: %+v, want to wait", c.Name, a)
	}
	return a
}

func (p *party) free(c dibs.Claim, fence uint64) {
	p.t.Helper()
	freed, err := p.s.Release(p.t.Context(), dibs.Release{Name: c.Name, Token: c.Token, Fence: fence, Until: time.Now().Add(generous)})
	if err != nil || !freed {
		p.t.Fatalf("release %q: %v, %v", c.Name, freed, err)
	}
}

func (p *party) inspect(name string) dibs.State {
	p.t.Helper()
	state, err := p.s.Inspect(p.t.Context(), name)
	if err != nil {
		p.t.Fatalf("inspect %q: %v", name, err)
	}
	return state
}

// What waits has keys that end by themselves, whatever has become of its process.
func TestKeysOfWaitersEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	p := mute(t, s)
	h, first, second := p.claim("n"), p.claim("n"), p.claim("n")
	fence := p.take(h)
	p.wait(first)
	wantKeysThatEnd(t, server)
	p.wait(second)
	// A young place needs no sign of life; in time there is one.
	for end := time.Now().Add(dibs.ClaimTTL / 2); len(keysOf(t, server)) < 4; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("keys %q, want lock, queue, signs and floor", keysOf(t, server))
		}
		p.wait(first)
	}
	wantKeysThatEnd(t, server)
	p.free(h, fence)
	wantKeysThatEnd(t, server)
	if err := s.Abandon(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := s.Abandon(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	wantKeysThatEnd(t, server)
}

// A waiter that cannot be reached is put aside while the next one is served. That
// must not make its place one for ever.
func TestKeysOfTheUnreachableEnd(t *testing.T) {
	t.Parallel()
	for name, unreachable := range map[string]int{"one": 1, "three": 3} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := open(t, server)
			dead, live := mute(t, s), join(t, s)
			h, last := live.claim("n"), live.claim("n")
			fence := live.take(h)
			for range unreachable {
				dead.wait(dead.claim("n"))
			}
			live.wait(last)
			live.free(h, fence)
			live.granted(last)
			if state := live.inspect("n"); state.Waiting != unreachable {
				t.Errorf("%d wait, want %d", state.Waiting, unreachable)
			}
			wantKeysThatEnd(t, server)
		})
	}
	t.Run("nobody else", func(t *testing.T) {
		server := redistest.Start(t)
		p := mute(t, open(t, server))
		h := p.claim("n")
		fence := p.take(h)
		for range 3 {
			p.wait(p.claim("n"))
		}
		p.free(h, fence)
		wantKeysThatEnd(t, server)
	})
}

// Clients that are done leave floors, one for each slot at most, and nothing else.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	const names, workers = 5, 40
	server := redistest.Start(t)
	a, b := dibs.New(open(t, server)), dibs.New(open(t, server))
	var group sync.WaitGroup
	var served, gone atomic.Int32
	for i := range workers {
		c, name := a, fmt.Sprint("n", i%names)
		if i%2 == 0 {
			c = b
		}
		group.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%4 == 3 {
				time.AfterFunc(5*time.Millisecond, cancel)
			}
			defer cancel()
			err := c.Mutex(name).Do(ctx, func(context.Context) error {
				time.Sleep(3 * time.Millisecond)
				return nil
			})
			switch {
			case err == nil:
				served.Add(1)
			case errors.Is(err, context.Canceled):
				gone.Add(1)
			default:
				t.Error(err)
			}
			if _, err := c.Mutex(name).TryLock(t.Context(), dibs.MaxHold(dibs.MinTTL)); err != nil && !errors.Is(err, dibs.ErrBusy) && !errors.Is(err, dibs.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	wantKeysThatEnd(t, server)
	for _, c := range []*dibs.Client{a, b} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := served.Load(); n < workers*3/4 {
		t.Errorf("%d served, %d left", n, gone.Load())
	}
	wantKeysThatEnd(t, server)
	wantOnlyFloors(t, server, names)
}

// floorOf makes a fence for a name and returns the key that remembers it.
func floorOf(t *testing.T, server *redistest.Server, p *party, name string) string {
	t.Helper()
	c := p.claim(name)
	p.free(c, p.take(c))
	for _, key := range keysOf(t, server) {
		if strings.HasPrefix(key, floors) {
			return key
		}
	}
	t.Fatal("no floor")
	return ""
}

// Lua's numbers are floating point, and what it prints of a large one is up to the
// format. Fences are exact, on each way that they take.
func TestFencesAreExact(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := join(t, open(t, server))
	floor := floorOf(t, server, p, "n")
	for _, last := range []uint64{1<<51 - 1, 1<<52 + 1, 1<<53 - 100, 4_999_999_999_999_999, 8_999_999_999_999_998} {
		server.MustCmd(t, "SET", floor, strconv.FormatUint(last, 10))
		grew := func(how string, fence uint64) {
			t.Helper()
			if fence != last+1 {
				t.Errorf("fence %d after %d, %s", fence, last, how)
			}
			last++
			if have := server.MustCmd(t, "GET", floor); have != strconv.FormatUint(last, 10) {
				t.Errorf("floor %v after %s, want %d", have, how, last)
			}
			if state := p.inspect("n"); state.Fence != last {
				t.Errorf("inspect tells fence %d after %d, %s", state.Fence, last, how)
			}
		}
		h, first, second := p.claim("n"), p.claim("n"), p.claim("n")
		grew("acquired", p.take(h))
		grew("asked again", p.take(h))
		p.wait(first)
		p.wait(second)
		p.free(h, last)
		grew("handed on", p.granted(first))
		p.free(first, 0)
		grew("handed on by one who did not know the fence", p.granted(second))
		grew("asked again", p.take(second))
		p.free(second, last)
		short := p.claim("n")
		short.TTL = 10 * time.Millisecond
		grew("acquired", p.take(short))
		wait := p.claim("n")
		for p.inspect("n").Holders != nil {
			time.Sleep(time.Millisecond)
		}
		grew("expired", p.take(wait))
		p.free(wait, last)
	}
}

// A server whose clock went back, for a second or for years, goes on counting; one
// whose clock is right again, too.
func TestFencesOutliveTheClock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server))
	floor := floorOf(t, server, p, "n")
	for _, ahead := range []time.Duration{time.Second, time.Hour, 100 * 365 * 24 * time.Hour} {
		last := uint64(time.Now().Add(ahead).UnixMicro())
		server.MustCmd(t, "SET", floor, strconv.FormatUint(last, 10))
		for range 5 {
			c := p.claim("n")
			fence := p.take(c)
			if fence != last+1 {
				t.Fatalf("fence %d after %d, with a clock %v behind", fence, last, ahead)
			}
			p.free(c, fence)
			last = fence
		}
	}
	server.MustCmd(t, "SET", floor, "7")
	before := uint64(time.Now().Add(-time.Minute).UnixMicro())
	c := p.claim("n")
	if fence := p.take(c); fence < before {
		t.Errorf("fence %d with a floor far below the clock, want the clock's time", fence)
	}
	// Names of one slot share a floor, and so do those of two prefixes.
	q := mute(t, open(t, server, redisstore.Prefix("other:{lock:n}:")))
	last := p.inspect("n").Fence
	if fence := q.take(q.claim("x")); fence <= last {
		t.Errorf("fence %d after %d in the same slot", fence, last)
	}
	if keys := keysOf(t, server); len(keys) != 3 {
		t.Errorf("keys %q, want two locks and one floor", keys)
	}
}

// No prefix makes two names one: a hand-off of the one must not grant the other.
func TestNamesLikeTagsAreNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	p := join(t, s)
	plain, tag := p.claim("a"), p.claim("{a}")
	plainFence, tagFence := p.take(plain), p.take(tag)
	waits := p.claim("a")
	waits.Queue = true
	p.wait(waits)
	if n := p.inspect("{a}").Waiting; n != 0 {
		t.Errorf("%d wait for {a}, want none: they wait for a", n)
	}
	p.free(tag, tagFence)
	select {
	case e := <-p.events:
		t.Errorf("a release of {a} brings %+v to one who waits for a, which is held", e)
	case <-time.After(100 * time.Millisecond):
		p.free(plain, plainFence)
		p.granted(waits)
	}
}

// A list is of this prefix, whatever it looks like in a glob.
func TestListKeepsToItsPrefix(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, prefix := range []string{"lock:", `we[i]rd*?\^]:`, "", "*", "[a]", `\`} {
		s := open(t, server, redisstore.Prefix(prefix))
		p := mute(t, s)
		mine := prefix + "mine" // a name that says where it belongs
		c := p.claim(mine)
		p.take(c)
		for _, other := range []string{"wexrdyyz:", "a", "xx"} {
			server.MustCmd(t, "SET", other+"mine", "x", "PX", "60000")
		}
		names, err := s.List(t.Context(), "*")
		if err != nil || !slices.Contains(names, mine) || prefix != "" && len(names) != 1 {
			t.Errorf("prefix %q: %q, %v", prefix, names, err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, floors) || strings.Contains(name, ":dibs:") {
				t.Errorf("prefix %q: lists %q", prefix, name)
			}
		}
		server.MustCmd(t, "FLUSHALL")
	}
}

// A key that holds something else is told as such, and stays as it is.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	p := mute(t, s)
	for _, key := range []string{"lock:n", "{lock:n}:dibs:queue"} {
		server.MustCmd(t, "FLUSHALL")
		server.MustCmd(t, "LPUSH", key, "x")
		c := p.claim("n")
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire with "+key, err, dibs.ErrForeign)
		_, err = s.Inspect(t.Context(), "n")
		wantIs(t, "inspect with "+key, err, dibs.ErrForeign)
		if n := server.MustCmd(t, "LLEN", key); n != int64(1) {
			t.Errorf("%q has %v items now", key, n)
		}
	}
	server.MustCmd(t, "FLUSHALL")
	server.MustCmd(t, "LPUSH", "lock:n", "x")
	c, other := p.claim("n"), p.claim("other")
	p.take(other)
	_, err := s.Release(t.Context(), dibs.Release{Name: "n", Token: c.Token})
	wantIs(t, "release", err, dibs.ErrForeign)
	errs := s.Extend(t.Context(), []dibs.Hold{{Name: "n", Token: c.Token, TTL: time.Minute}, {Name: "other", Token: other.Token, TTL: time.Minute}})
	wantIs(t, "extend", errs[0], dibs.ErrForeign)
	wantIs(t, "extend", errs[0], dibs.ErrLost)
	if errs[1] != nil {
		t.Errorf("extend: %v of another name", errs[1])
	}

	// A string without an end is a holder that never expires, also an empty one.
	for _, value := range []string{"somebody", ""} {
		server.MustCmd(t, "SET", "lock:n", value)
		c.Queue = false
		if a := p.ask(c); a.Held || a.Remaining >= 0 || a.Holder != value {
			t.Errorf("%+v while %q holds for ever", a, value)
		}
		if state := p.inspect("n"); len(state.Holders) != 1 || state.Holders[0].Remaining >= 0 {
			t.Errorf("%+v while %q holds for ever", state, value)
		}
	}
}

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// A claim that the scripts could not read back is refused before it is sent: it
// would fail in the hands of whoever releases the name.
func TestBadClaims(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	before, err := server.Commands()
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*dibs.Claim){
		"no token":           func(c *dibs.Claim) { c.Token = "" },
		"no client":          func(c *dibs.Claim) { c.Client = "" },
		"client with space":  func(c *dibs.Claim) { c.Client = "a b" },
		"client with tab":    func(c *dibs.Claim) { c.Client = "a\tb" },
		"client with \\n":    func(c *dibs.Claim) { c.Client = "a\n" },
		"client with \\r":    func(c *dibs.Claim) { c.Client = "\ra" },
		"client with \\v":    func(c *dibs.Claim) { c.Client = "a\vb" },
		"client with \\f":    func(c *dibs.Claim) { c.Client = "a\fb" },
		"no TTL":             func(c *dibs.Claim) { c.TTL = 0 },
		"negative TTL":       func(c *dibs.Claim) { c.TTL = -time.Second },
		"a TTL below 1ms":    func(c *dibs.Claim) { c.TTL = time.Millisecond - 1 },
		"no weight":          func(c *dibs.Claim) { c.Weight = 0 },
		"a limit too low":    func(c *dibs.Claim) { c.Weight = 2 },
		"a limit too high":   func(c *dibs.Claim) { c.Limit = dibs.Unlimited + 1 },
		"parts of a set":     func(c *dibs.Claim) { c.Limit, c.With = 2, []string{"m"} },
		"a bad second name":  func(c *dibs.Claim) { c.With = []string{"m", "a}"} },
		"no name":            func(c *dibs.Claim) { c.Name = "" },
		"a stray brace":      func(c *dibs.Claim) { c.Name = "a}" },
		"a queue's name":     func(c *dibs.Claim) { c.Name = "a:dibs:queue" },
		"a name of 513":      func(c *dibs.Claim) { c.Name = strings.Repeat("n", 513) },
		"a name not of UTF8": func(c *dibs.Claim) { c.Name = "\xff" },
	} {
		c := mute(t, s).claim("n")
		spoil(&c)
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire, "+what, err, dibs.ErrInvalid)
		wantIs(t, "abandon, "+what, s.Abandon(t.Context(), c), dibs.ErrInvalid)
	}
	for _, name := range []string{"", "a}", strings.Repeat("n", 513), "\xff", "a:dibs:signs"} {
		_, err := s.Release(t.Context(), dibs.Release{Name: name, Token: "t"})
		wantIs(t, fmt.Sprintf("release %q", name), err, dibs.ErrInvalid)
		_, err = s.Inspect(t.Context(), name)
		wantIs(t, fmt.Sprintf("inspect %q", name), err, dibs.ErrInvalid)
		wantIs(t, fmt.Sprintf("extend %q", name), s.Extend(t.Context(), []dibs.Hold{{Name: name, Token: "t", TTL: time.Minute}})[0], dibs.ErrInvalid)
	}
	after, err := server.Commands()
	if err != nil || after != before+1 {
		t.Errorf("%d commands were sent, %v; want none", after-before-1, err)
	}
}

// A server that has forgotten the scripts learns them again, within the call.
func TestScriptsAreTaught(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	p := join(t, s)
	for range 3 {
		flush := func() { server.MustCmd(t, "SCRIPT", "FLUSH") }
		flush()
		h, next := p.claim("n"), p.claim("n")
		fence := p.take(h)
		flush()
		p.wait(next)
		flush()
		if err := s.Extend(t.Context(), []dibs.Hold{{Name: "n", Token: h.Token, TTL: time.Minute}})[0]; err != nil {
			t.Fatal(err)
		}
		flush()
		if state := p.inspect("n"); state.Waiting != 1 {
			t.Fatalf("%+v", state)
		}
		flush()
		p.free(h, fence)
		p.free(next, p.granted(next))
	}
}

// A nil option is no option.
func TestNilOption(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panic: %v", r)
		}
	}()
	p := mute(t, open(t, server, nil, redisstore.Prefix("p:"), nil))
	p.take(p.claim("n"))
	if keys := keysOf(t, server); !slices.Contains(keys, "p:n") {
		t.Errorf("keys %q", keys)
	}
}

// What was noted of parts whose holders all died goes when the next one comes.
func TestNotesOfTheDeadGo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server, redisstore.Prefix("")))
	share := func(ttl time.Duration) dibs.Claim {
		c := p.claim("n")
		c.Weight, c.Limit, c.TTL = 1, 50, ttl
		return c
	}
	for range 3 {
		for range 50 {
			p.take(share(30 * time.Millisecond))
		}
		for end := time.Now().Add(generous); server.MustCmd(t, "EXISTS", "n") != int64(0); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the parts do not expire")
			}
		}
	}
	last := share(time.Minute)
	fence := p.take(last)
	if n := server.MustCmd(t, "HLEN", "{n}"+signs); n != int64(1) { // its own
		t.Errorf("%v notes are left, want 1: %v", n, server.MustCmd(t, "HKEYS", "{n}"+signs))
	}
	p.free(last, fence)
	wantOnlyFloors(t, server, 1)
	if n := server.MustCmd(t, "EXISTS", "{n}"+signs); n != int64(0) {
		t.Error("notes are left after the last part")
	}
}

// A slow Conn holds each request up, and says when it has passed it on.
type slow struct {
	redisstore.Conn
	by     atomic.Int64
	passed chan struct{}
}

func (s *slow) Do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	time.Sleep(time.Duration(s.by.Load())) // not to synchronise: it is what the test is about
	s.Conn.Do(ctx, cmds, replies)
	s.passed <- struct{}{}
}

// A request that arrives when its caller has given it up changes nothing.
func TestLateRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	late := &slow{Conn: conn, passed: make(chan struct{}, 100)}
	s, good := redisstore.New(late), open(t, server)
	mute(t, s).take(mute(t, s).claim("clock")) // what the server's clock says is learnt by it
	for len(late.passed) > 0 {
		<-late.passed
	}
	late.by.Store(int64(150 * time.Millisecond))
	p := mute(t, good)
	writer := p.claim("n")
	p.take(writer)
	part := writer
	part.Weight, part.Limit = 1, 2
	set, queued := p.claim("a"), p.claim("n")
	set.With = []string{"b"}
	reader := p.claim("parts")
	reader.Weight, reader.Limit = 1, 2
	p.take(reader)
	waiter := p.claim("n")
	ticket := p.wait(waiter).Ticket
	release := func(c dibs.Claim, keep time.Duration) func(until time.Time) (dibs.Answer, error) {
		return func(until time.Time) (dibs.Answer, error) {
			held, err := s.Release(t.Context(), dibs.Release{Name: c.Name, Token: c.Token, Keep: keep, Until: until})
			return dibs.Answer{Held: held}, err
		}
	}
	for what, ask := range map[string]func(until time.Time) (dibs.Answer, error){
		"release":           release(writer, 0),
		"release to keep":   release(writer, time.Minute),
		"release of a part": release(reader, 0),
		"abandon": func(until time.Time) (dibs.Answer, error) {
			c := waiter
			c.Until = until
			return dibs.Answer{}, s.Abandon(t.Context(), c)
		},
		"acquire": func(until time.Time) (dibs.Answer, error) {
			c := p.claim("free")
			c.Until = until
			return s.Acquire(t.Context(), c)
		},
		"queue": func(until time.Time) (dibs.Answer, error) {
			queued.Until = until
			return s.Acquire(t.Context(), queued)
		},
		"set": func(until time.Time) (dibs.Answer, error) {
			set.Until = until
			return s.Acquire(t.Context(), set)
		},
		"reweigh": func(until time.Time) (dibs.Answer, error) {
			part.Until = until
			return s.Reweigh(t.Context(), part)
		},
	} {
		for passed := false; !passed; { // a busy machine may not send it in time
			if a, err := ask(time.Now().Add(30 * time.Millisecond)); !errors.Is(err, dibs.ErrUnavailable) {
				t.Fatalf("%s: %+v, %v", what, a, err)
			}
			select {
			case <-late.passed:
				passed = true
			case <-time.After(time.Second):
			}
		}
	}
	for _, name := range []string{"free", "a", "b"} {
		if state := p.inspect(name); state.Holding > 0 || state.Waiting > 0 {
			t.Errorf("%q: %+v", name, state)
		}
	}
	state := p.inspect("n")
	if state.Holding != 1 || state.Holders[0].Weight != 0 || state.Holders[0].Token != writer.Token || state.Waiting != 1 {
		t.Errorf("%+v: want the one who holds alone, and one who waits", state)
	}
	if a := p.wait(waiter); a.Ticket != ticket || a.Position != 1 {
		t.Errorf("%+v: the place is another one, it had ticket %d", a, ticket)
	}
	if state := p.inspect("parts"); state.Holding != 1 || state.Holders[0].Token != reader.Token {
		t.Errorf("%+v: want the one who holds a part", state)
	}
}

// The fence of a set is larger than the floor of each of its names, and so are the
// fences after it.
func TestFenceOfASetIsAboveAllFloors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server))
	names := []string{"a", "b", "c"}
	var largest uint64
	for i, name := range names {
		before := keysOf(t, server)
		floorOf(t, server, p, name)
		largest = uint64(time.Now().Add(time.Duration(i+1) * time.Hour).UnixMicro())
		for _, key := range keysOf(t, server) {
			if !slices.Contains(before, key) {
				server.MustCmd(t, "SET", key, strconv.FormatUint(largest, 10))
			}
		}
	}
	set := p.claim("a")
	set.With = names[1:]
	fence := p.take(set)
	if fence != largest+1 {
		t.Errorf("fence %d, want one more than %d", fence, largest)
	}
	for _, name := range names {
		if f := p.inspect(name).Fence; f != fence {
			t.Errorf("floor of %q: %d, want %d", name, f, fence)
		}
	}
}

// A store that knows nothing yet of the server's clock learns it by its first release.
func TestFreshStoresRelease(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := mute(t, open(t, server))
	warm := p.claim("the server knows the script")
	p.free(warm, p.take(warm))
	for what, undo := range map[string]func(s *redisstore.Store, c dibs.Claim) error{
		"release": func(s *redisstore.Store, c dibs.Claim) error {
			freed, err := s.Release(t.Context(), dibs.Release{Name: c.Name, Token: c.Token})
			if err == nil && !freed {
				err = dibs.ErrLost
			}
			return err
		},
		"abandon": func(s *redisstore.Store, c dibs.Claim) error { return s.Abandon(t.Context(), c) },
	} {
		c := p.claim(what)
		p.take(c)
		conn := redistest.Dial(server.Addr())
		t.Cleanup(conn.Close)
		counted := &slow{Conn: conn, passed: make(chan struct{}, 100)}
		s := redisstore.New(counted)
		if err := undo(s, c); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if state := p.inspect(what); state.Holding > 0 {
			t.Errorf("%s: %+v", what, state)
		}
		if n := len(counted.passed); n != 2 {
			t.Errorf("%s: %d exchanges of a fresh store, want 2", what, n)
		}
		again := p.claim(what)
		p.take(again)
		if err := undo(s, again); err != nil || len(counted.passed) != 3 {
			t.Errorf("%s: %v, %d exchanges after the second, want 3", what, err, len(counted.passed))
		}
	}
}
