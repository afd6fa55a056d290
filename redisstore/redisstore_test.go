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
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
	"github.com/dibslock/dibs/storetest"
)

const (
	generous = 10 * time.Second
	longest  = driver.MaxReserve // of the TTLs in the suite
)

func TestStore(t *testing.T) {
	t.Parallel()
	runSuite(t, redistest.Start(t))
}

func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	runSuite(t, redistest.StartClusterNode(t), redisstore.HiddenCluster())
}

// runSuite runs the conformance suite on a server shared by all cases. It checks the keys all the
// time, and at the end.
func runSuite(t *testing.T, server *redistest.Server, options ...redisstore.Option) {
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			wantExpiringKeys(t, server)
			select {
			case <-over:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	var stores atomic.Int32
	t.Run("contract", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			prefix := fmt.Sprintf("%d:", stores.Add(1))
			return open(t, server, append(options, redisstore.Prefix(prefix))...)
		})
		storetest.RunClocks(t, func(t *testing.T) driver.Store { return open(t, server, options...) })
	})
	close(over)
	watch.Wait()
	wantExpiringKeys(t, server)
}

func open(t testing.TB, server *redistest.Server, options ...redisstore.Option) *redisstore.Store {
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
	highwaters = "dibs:fence:"
	queue      = ":dibs:queue"
	meta       = ":dibs:meta"
	shared     = ":dibs:holders"
)

// wantExpiringKeys checks that each key has a TTL, except the high-water marks.
func wantExpiringKeys(t *testing.T, server *redistest.Server) {
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
		case strings.HasSuffix(key, meta), strings.HasSuffix(key, shared): // a minute longer than the lock
			most = (longest + time.Minute).Milliseconds()
		}
		switch ms, _ := ttl.(int64); {
		case ms == -2: // expired meanwhile
		case strings.HasPrefix(key, highwaters), key == "dibs:node":
			if ms != -1 {
				t.Errorf("%q expires in %d ms", key, ms)
			}
		case ms == -1:
			t.Errorf("%q never expires", key)
		case ms > most:
			t.Errorf("%q expires in %d ms, more than %d", key, ms, most)
		}
	}
}

// wantOnlyHighwaterMarks checks that only high-water marks and heartbeats are left. To delete
// heartbeats at each hand-off would cost more than to let them expire within a minute.
func wantOnlyHighwaterMarks(t *testing.T, server *redistest.Server, most int) {
	t.Helper()
	keys := keysOf(t, server)
	left := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return strings.HasPrefix(key, highwaters) || strings.HasSuffix(key, meta) })
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, highwaters) })
	if len(keys) > most {
		t.Errorf("highwaters %q, want at most %d", keys, most)
	}
}

// A testClient sends requests to a store.
type testClient struct {
	t      *testing.T
	s      *driver.Full
	client string
	seq    uint64
	events chan driver.Event
}

var testClients atomic.Uint64

// newClient returns a client that does not watch.
func newClient(t *testing.T, s driver.Store) *testClient {
	return &testClient{t: t, s: driver.Complete(s), client: fmt.Sprintf("host:%d:test", testClients.Add(1))}
}

// watchingClient returns a client that watches.
func watchingClient(t *testing.T, s driver.Store) *testClient {
	t.Helper()
	p := newClient(t, s)
	p.events = make(chan driver.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { _ = s.Watch(ctx, p.client, nil, func(e driver.Event) { p.events <- e }) })
	t.Cleanup(func() { cancel(); watch.Wait() })
	if e := p.nextEvent(); e.Kind != driver.EventConnected {
		t.Fatalf("first event %+v, want EventConnected", e)
	}
	return p
}

func (p *testClient) nextEvent() driver.Event {
	p.t.Helper()
	select {
	case e := <-p.events:
		return e
	case <-time.After(generous):
		p.t.Fatal("no event")
		return driver.Event{}
	}
}

func (p *testClient) wantGrant(r driver.AcquireRequest) uint64 {
	p.t.Helper()
	e := p.nextEvent()
	if e.Kind != driver.EventGranted || e.Token != r.Token {
		p.t.Fatalf("event %+v, want the grant of %s", e, r.Token)
	}
	return e.Fence
}

func (p *testClient) request(name string) driver.AcquireRequest {
	p.seq++
	return driver.AcquireRequest{
		Name: name, Token: fmt.Sprintf("%s:%d", p.client, p.seq), Client: p.client, Seq: p.seq,
		TTL: time.Minute, Weight: 1, Limit: 1, Queue: true,
	}
}

func (p *testClient) acquire(r driver.AcquireRequest) driver.AcquireReply {
	p.t.Helper()
	r.Until = time.Now().Add(generous)
	a, err := p.s.Acquire(p.t.Context(), r)
	if err != nil {
		p.t.Fatalf("acquire %q: %v", r.Name, err)
	}
	return a
}

func (p *testClient) mustAcquire(r driver.AcquireRequest) uint64 {
	p.t.Helper()
	a := p.acquire(r)
	if !a.Held || a.Fence == 0 {
		p.t.Fatalf("acquire %q: %+v, want held", r.Name, a)
	}
	return a.Fence
}

func (p *testClient) mustWait(r driver.AcquireRequest) driver.AcquireReply {
	p.t.Helper()
	a := p.acquire(r)
	if a.Held || a.Ticket == 0 {
		p.t.Fatalf("acquire %q: %+v, want to wait", r.Name, a)
	}
	return a
}

func (p *testClient) mustRelease(r driver.AcquireRequest, fence uint64) {
	p.t.Helper()
	freed, err := p.s.Release(p.t.Context(), driver.ReleaseRequest{Name: r.Name, Token: r.Token, Fence: fence, Until: time.Now().Add(generous)})
	if err != nil || !freed {
		p.t.Fatalf("release %q: %v, %v", r.Name, freed, err)
	}
}

func (p *testClient) inspect(name string) driver.State {
	p.t.Helper()
	state, err := p.s.Inspect(p.t.Context(), name)
	if err != nil {
		p.t.Fatalf("inspect %q: %v", name, err)
	}
	return state
}

// Waiters' keys expire, even after their process died.
func TestKeysOfWaitersExpire(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	p := newClient(t, s)
	h, first, second := p.request("n"), p.request("n"), p.request("n")
	fence := p.mustAcquire(h)
	p.mustWait(first)
	wantExpiringKeys(t, server)
	p.mustWait(second)
	// A fresh entry needs no heartbeat; a later entry does.
	for end := time.Now().Add(driver.WaiterTTL / 2); len(keysOf(t, server)) < 4; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("keys %q, want lock, queue, meta and highwater", keysOf(t, server))
		}
		p.mustWait(first)
	}
	wantExpiringKeys(t, server)
	p.mustRelease(h, fence)
	wantExpiringKeys(t, server)
	if err := s.Cancel(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if err := s.Cancel(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	wantExpiringKeys(t, server)
}

// An unreachable waiter is passed over while the next waiter is served. Its entry should
// nevertheless expire.
func TestKeysOfUnreachableWaitersExpire(t *testing.T) {
	t.Parallel()
	for name, unreachable := range map[string]int{"one": 1, "three": 3} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			s := open(t, server)
			dead, live := newClient(t, s), watchingClient(t, s)
			h, last := live.request("n"), live.request("n")
			fence := live.mustAcquire(h)
			for range unreachable {
				dead.mustWait(dead.request("n"))
			}
			live.mustWait(last)
			live.mustRelease(h, fence)
			live.wantGrant(last)
			if state := live.inspect("n"); state.Waiting != unreachable {
				t.Errorf("%d wait, want %d", state.Waiting, unreachable)
			}
			wantExpiringKeys(t, server)
		})
	}
	t.Run("no other waiter", func(t *testing.T) {
		server := redistest.Start(t)
		p := newClient(t, open(t, server))
		h := p.request("n")
		fence := p.mustAcquire(h)
		for range 3 {
			p.mustWait(p.request("n"))
		}
		p.mustRelease(h, fence)
		wantExpiringKeys(t, server)
	})
}

// Clients that are done should leave at most a high-water mark for each slot, and nothing else.
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
			if _, err := c.Mutex(name).TryLock(t.Context(), dibs.MaxHold(driver.MinTTL)); err != nil && !errors.Is(err, dibs.ErrBusy) && !errors.Is(err, dibs.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	wantExpiringKeys(t, server)
	for _, c := range []*dibs.Client{a, b} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := served.Load(); n < workers*3/4 {
		t.Errorf("%d served, %d left", n, gone.Load())
	}
	wantExpiringKeys(t, server)
	wantOnlyHighwaterMarks(t, server, names)
}

// highwaterKeyOf makes a fence for a name and returns its high-water mark's key.
func highwaterKeyOf(t *testing.T, server *redistest.Server, p *testClient, name string) string {
	t.Helper()
	r := p.request(name)
	p.mustRelease(r, p.mustAcquire(r))
	for _, key := range keysOf(t, server) {
		if strings.HasPrefix(key, highwaters) {
			return key
		}
	}
	t.Fatal("no highwater")
	return ""
}

// Lua's numbers are floating point, and a large number's text depends on the format. Fences are
// exact in every path.
func TestFencesAreExact(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := watchingClient(t, open(t, server))
	highwater := highwaterKeyOf(t, server, p, "n")
	for _, last := range []uint64{1<<51 - 1, 1<<52 + 1, 1<<53 - 100, 4_999_999_999_999_999, 8_999_999_999_999_998} {
		server.MustCmd(t, "SET", highwater, strconv.FormatUint(last, 10))
		grew := func(how string, fence uint64) {
			t.Helper()
			if fence != last+1 {
				t.Errorf("fence %d after %d, %s", fence, last, how)
			}
			last++
			if have := server.MustCmd(t, "GET", highwater); have != strconv.FormatUint(last, 10) {
				t.Errorf("highwater %v after %s, want %d", have, how, last)
			}
			if state := p.inspect("n"); state.Fence != last {
				t.Errorf("inspect returns fence %d after %d, %s", state.Fence, last, how)
			}
		}
		h, first, second := p.request("n"), p.request("n"), p.request("n")
		grew("acquired", p.mustAcquire(h))
		grew("repeated", p.mustAcquire(h))
		p.mustWait(first)
		p.mustWait(second)
		p.mustRelease(h, last)
		grew("hand-off", p.wantGrant(first))
		p.mustRelease(first, 0)
		grew("hand-off by a release without the fence", p.wantGrant(second))
		grew("repeated", p.mustAcquire(second))
		p.mustRelease(second, last)
		short := p.request("n")
		short.TTL = 10 * time.Millisecond
		grew("acquired", p.mustAcquire(short))
		wait := p.request("n")
		for p.inspect("n").Holders != nil {
			time.Sleep(time.Millisecond)
		}
		grew("expired", p.mustAcquire(wait))
		p.mustRelease(wait, last)
	}
}

// Fences grow on a server whose clock went back, for a second or for years, and after it
// is right again.
func TestFencesGrowAfterClockSteps(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server))
	highwater := highwaterKeyOf(t, server, p, "n")
	for _, ahead := range []time.Duration{time.Second, time.Hour, 100 * 365 * 24 * time.Hour} {
		last := uint64(time.Now().Add(ahead).UnixMicro())
		server.MustCmd(t, "SET", highwater, strconv.FormatUint(last, 10))
		for range 5 {
			r := p.request("n")
			fence := p.mustAcquire(r)
			if fence != last+1 {
				t.Fatalf("fence %d after %d, with a clock %v behind", fence, last, ahead)
			}
			p.mustRelease(r, fence)
			last = fence
		}
	}
	server.MustCmd(t, "SET", highwater, "7")
	before := uint64(time.Now().Add(-time.Minute).UnixMicro())
	r := p.request("n")
	if fence := p.mustAcquire(r); fence < before {
		t.Errorf("fence %d with a highwater far below the clock, want the clock's time", fence)
	}
	// Names in the same slot share a high-water mark, even with two prefixes.
	q := newClient(t, open(t, server, redisstore.Prefix("other:{lock:n}:")))
	last := p.inspect("n").Fence
	if fence := q.mustAcquire(q.request("x")); fence <= last {
		t.Errorf("fence %d after %d in the same slot", fence, last)
	}
	if keys := keysOf(t, server); len(keys) != 3 {
		t.Errorf("keys %q, want two locks and one highwater", keys)
	}
}

// No prefix makes two names equal: one name's hand-off must not grant the other.
func TestNamesLikeTagsAreSeparate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	p := watchingClient(t, s)
	plain, tag := p.request("a"), p.request("{a}")
	plainFence, tagFence := p.mustAcquire(plain), p.mustAcquire(tag)
	waits := p.request("a")
	waits.Queue = true
	p.mustWait(waits)
	if n := p.inspect("{a}").Waiting; n != 0 {
		t.Errorf("%d wait for {a}, want none: the waiters are for a", n)
	}
	p.mustRelease(tag, tagFence)
	select {
	case e := <-p.events:
		t.Errorf("a release of {a} sends %+v to a waiter for a, which is held", e)
	case <-time.After(100 * time.Millisecond):
		p.mustRelease(plain, plainFence)
		p.wantGrant(waits)
	}
}

// List should return names with its own prefix, whatever the prefix means in a glob.
func TestListUsesItsPrefix(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, prefix := range []string{"lock:", `we[i]rd*?\^]:`, "", "*", "[a]", `\`} {
		s := open(t, server, redisstore.Prefix(prefix))
		p := newClient(t, s)
		mine := prefix + "mine" // a name that contains its prefix
		r := p.request(mine)
		p.mustAcquire(r)
		for _, other := range []string{"wexrdyyz:", "a", "xx"} {
			server.MustCmd(t, "SET", other+"mine", "x", "PX", "60000")
		}
		names, err := s.List(t.Context(), "*")
		if err != nil || !slices.Contains(names, mine) || prefix != "" && len(names) != 1 {
			t.Errorf("prefix %q: %q, %v", prefix, names, err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, highwaters) || strings.Contains(name, ":dibs:") {
				t.Errorf("prefix %q: lists %q", prefix, name)
			}
		}
		server.MustCmd(t, "FLUSHALL")
	}
}

// A key whose value has another type should be reported as such, and not changed.
func TestWrongType(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	p := newClient(t, s)
	for _, key := range []string{"lock:n", "{lock:n}:dibs:queue"} {
		server.MustCmd(t, "FLUSHALL")
		server.MustCmd(t, "LPUSH", key, "x")
		r := p.request("n")
		_, err := s.Acquire(t.Context(), r)
		wantIs(t, "acquire with "+key, err, dibs.ErrWrongType)
		_, err = s.Inspect(t.Context(), "n")
		wantIs(t, "inspect with "+key, err, dibs.ErrWrongType)
		if n := server.MustCmd(t, "LLEN", key); n != int64(1) {
			t.Errorf("%q has %v items now", key, n)
		}
	}
	server.MustCmd(t, "FLUSHALL")
	server.MustCmd(t, "LPUSH", "lock:n", "x")
	r, other := p.request("n"), p.request("other")
	p.mustAcquire(other)
	_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: r.Token})
	wantIs(t, "release", err, dibs.ErrWrongType)
	errs := s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: r.Token, TTL: time.Minute}, {Name: "other", Token: other.Token, TTL: time.Minute}})
	wantIs(t, "extend", errs[0], dibs.ErrWrongType)
	wantIs(t, "extend", errs[0], dibs.ErrLost)
	if errs[1] != nil {
		t.Errorf("extend: %v of another name", errs[1])
	}

	// A string without a TTL is a holder without expiry; so is an empty string.
	for _, value := range []string{"somebody", ""} {
		server.MustCmd(t, "SET", "lock:n", value)
		r.Queue = false
		if a := p.acquire(r); a.Held || a.Remaining >= 0 || a.Holder != value {
			t.Errorf("%+v while %q holds without a TTL", a, value)
		}
		if state := p.inspect("n"); len(state.Holders) != 1 || state.Holders[0].Remaining >= 0 {
			t.Errorf("%+v while %q holds without a TTL", state, value)
		}
	}
}

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// A request that the scripts could not read back is rejected before it is sent: otherwise it
// would fail in another client's release.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	before, err := server.Commands()
	if err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*driver.AcquireRequest){
		"no token":           func(r *driver.AcquireRequest) { r.Token = "" },
		"no client":          func(r *driver.AcquireRequest) { r.Client = "" },
		"client with space":  func(r *driver.AcquireRequest) { r.Client = "a b" },
		"client with tab":    func(r *driver.AcquireRequest) { r.Client = "a\tb" },
		"client with \\n":    func(r *driver.AcquireRequest) { r.Client = "a\n" },
		"client with \\r":    func(r *driver.AcquireRequest) { r.Client = "\ra" },
		"client with \\v":    func(r *driver.AcquireRequest) { r.Client = "a\vb" },
		"client with \\f":    func(r *driver.AcquireRequest) { r.Client = "a\fb" },
		"no TTL":             func(r *driver.AcquireRequest) { r.TTL = 0 },
		"negative TTL":       func(r *driver.AcquireRequest) { r.TTL = -time.Second },
		"a TTL below 1ms":    func(r *driver.AcquireRequest) { r.TTL = time.Millisecond - 1 },
		"no weight":          func(r *driver.AcquireRequest) { r.Weight = 0 },
		"a limit too low":    func(r *driver.AcquireRequest) { r.Weight = 2 },
		"a limit too high":   func(r *driver.AcquireRequest) { r.Limit = driver.Unlimited + 1 },
		"shared multi-lock":  func(r *driver.AcquireRequest) { r.Limit, r.With = 2, []string{"m"} },
		"a bad second name":  func(r *driver.AcquireRequest) { r.With = []string{"m", "a}"} },
		"no name":            func(r *driver.AcquireRequest) { r.Name = "" },
		"a stray brace":      func(r *driver.AcquireRequest) { r.Name = "a}" },
		"a queue's name":     func(r *driver.AcquireRequest) { r.Name = "a:dibs:queue" },
		"a name of 513":      func(r *driver.AcquireRequest) { r.Name = strings.Repeat("n", 513) },
		"a name not of UTF8": func(r *driver.AcquireRequest) { r.Name = "\xff" },
	} {
		r := newClient(t, s).request("n")
		spoil(&r)
		_, err := s.Acquire(t.Context(), r)
		wantIs(t, "acquire, "+what, err, dibs.ErrInvalid)
		wantIs(t, "cancel, "+what, s.Cancel(t.Context(), r), dibs.ErrInvalid)
	}
	for _, name := range []string{"", "a}", strings.Repeat("n", 513), "\xff", "a:dibs:meta"} {
		_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: "t"})
		wantIs(t, fmt.Sprintf("release %q", name), err, dibs.ErrInvalid)
		_, err = s.Inspect(t.Context(), name)
		wantIs(t, fmt.Sprintf("inspect %q", name), err, dibs.ErrInvalid)
		wantIs(t, fmt.Sprintf("extend %q", name), s.Extend(t.Context(), []driver.ExtendRequest{{Name: name, Token: "t", TTL: time.Minute}})[0], dibs.ErrInvalid)
	}
	after, err := server.Commands()
	if err != nil || after != before+1 {
		t.Errorf("%d commands were sent, %v; want none", after-before-1, err)
	}
}

// A server that lost the scripts must get them again, within the call.
func TestScriptsAreReloaded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	p := watchingClient(t, s)
	for range 3 {
		flush := func() { server.MustCmd(t, "SCRIPT", "FLUSH") }
		flush()
		h, next := p.request("n"), p.request("n")
		fence := p.mustAcquire(h)
		flush()
		p.mustWait(next)
		flush()
		if err := s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: h.Token, TTL: time.Minute}})[0]; err != nil {
			t.Fatal(err)
		}
		flush()
		if state := p.inspect("n"); state.Waiting != 1 {
			t.Fatalf("%+v", state)
		}
		flush()
		p.mustRelease(h, fence)
		p.mustRelease(next, p.wantGrant(next))
	}
}

// A nil option should have no effect.
func TestZeroOption(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panic: %v", r)
		}
	}()
	p := newClient(t, open(t, server, redisstore.Option{}, redisstore.Prefix("p:")))
	p.mustAcquire(p.request("n"))
	if keys := keysOf(t, server); !slices.Contains(keys, "p:n") {
		t.Errorf("keys %q", keys)
	}
}

// When all shared holders expired, the next holder removes their metadata.
func TestMetadataOfExpiredHoldersIsRemoved(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	share := func(ttl time.Duration) driver.AcquireRequest {
		r := p.request("n")
		r.Weight, r.Limit, r.TTL = 1, 50, ttl
		return r
	}
	for range 3 {
		for range 50 {
			p.mustAcquire(share(30 * time.Millisecond))
		}
		for end := time.Now().Add(generous); server.MustCmd(t, "EXISTS", "n") != int64(0); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the shared leases do not expire")
			}
		}
	}
	last := share(time.Minute)
	fence := p.mustAcquire(last)
	if n := server.MustCmd(t, "HLEN", "{n}"+meta); n != int64(1) { // its own field
		t.Errorf("%v metadata fields are left, want 1: %v", n, server.MustCmd(t, "HKEYS", "{n}"+meta))
	}
	p.mustRelease(last, fence)
	wantOnlyHighwaterMarks(t, server, 1)
	if n := server.MustCmd(t, "EXISTS", "{n}"+meta); n != int64(0) {
		t.Error("metadata are left after the last holder")
	}
}

// A slowConn delays each request, and reports when it was passed on.
type slowConn struct {
	redisconn.Conn
	by     atomic.Int64
	passed chan struct{}
}

func (s *slowConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	time.Sleep(time.Duration(s.by.Load())) // not for synchronization: the test is about the delay
	s.Conn.Do(ctx, until, cmds, replies)
	s.passed <- struct{}{}
}

// A request that arrives after its caller gave up changes nothing.
func TestLateRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	late := &slowConn{Conn: conn, passed: make(chan struct{}, 100)}
	s, good := redisstore.New(late), open(t, server)
	newClient(t, s).mustAcquire(newClient(t, s).request("clock")) // its reply contains the server's time
	for len(late.passed) > 0 {
		<-late.passed
	}
	late.by.Store(int64(150 * time.Millisecond))
	p := newClient(t, good)
	writer := p.request("n")
	p.mustAcquire(writer)
	resized := writer
	resized.Weight, resized.Limit = 1, 2
	multi, queued := p.request("a"), p.request("n")
	multi.With = []string{"b"}
	reader := p.request("shared")
	reader.Weight, reader.Limit = 1, 2
	p.mustAcquire(reader)
	waiter := p.request("n")
	ticket := p.mustWait(waiter).Ticket
	release := func(r driver.AcquireRequest, keep time.Duration) func(until time.Time) (driver.AcquireReply, error) {
		return func(until time.Time) (driver.AcquireReply, error) {
			held, err := s.Release(t.Context(), driver.ReleaseRequest{Name: r.Name, Token: r.Token, Reserve: keep, Until: until})
			return driver.AcquireReply{Held: held}, err
		}
	}
	for what, send := range map[string]func(until time.Time) (driver.AcquireReply, error){
		"release":                   release(writer, 0),
		"release, reserved":         release(writer, time.Minute),
		"release of a shared lease": release(reader, 0),
		"cancel": func(until time.Time) (driver.AcquireReply, error) {
			r := waiter
			r.Until = until
			return driver.AcquireReply{}, s.Cancel(t.Context(), r)
		},
		"acquire": func(until time.Time) (driver.AcquireReply, error) {
			r := p.request("free")
			r.Until = until
			return s.Acquire(t.Context(), r)
		},
		"queue": func(until time.Time) (driver.AcquireReply, error) {
			queued.Until = until
			return s.Acquire(t.Context(), queued)
		},
		"multi-lock": func(until time.Time) (driver.AcquireReply, error) {
			multi.Until = until
			return s.Acquire(t.Context(), multi)
		},
		"resize": func(until time.Time) (driver.AcquireReply, error) {
			resized.Until = until
			return s.Resize(t.Context(), resized)
		},
	} {
		for passed := false; !passed; { // a busy machine may not send the request in time
			if a, err := send(time.Now().Add(30 * time.Millisecond)); !errors.Is(err, dibs.ErrUnavailable) {
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
		t.Errorf("%+v: want the exclusive holder and one waiter", state)
	}
	if a := p.mustWait(waiter); a.Ticket != ticket || a.Position != 1 {
		t.Errorf("%+v: the entry is another one, it had ticket %d", a, ticket)
	}
	if state := p.inspect("shared"); state.Holding != 1 || state.Holders[0].Token != reader.Token {
		t.Errorf("%+v: want the shared holder", state)
	}
}

// A multi-lock's fence is larger than the high-water mark for each name, and so are the fences
// after it.
func TestMultiLockFenceExceedsAllHighwaterMarks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server))
	names := []string{"a", "b", "c"}
	var largest uint64
	for i, name := range names {
		before := keysOf(t, server)
		highwaterKeyOf(t, server, p, name)
		largest = uint64(time.Now().Add(time.Duration(i+1) * time.Hour).UnixMicro())
		for _, key := range keysOf(t, server) {
			if !slices.Contains(before, key) {
				server.MustCmd(t, "SET", key, strconv.FormatUint(largest, 10))
			}
		}
	}
	multi := p.request("a")
	multi.With = names[1:]
	fence := p.mustAcquire(multi)
	if fence != largest+1 {
		t.Errorf("fence %d, want one more than %d", fence, largest)
	}
	for _, name := range names {
		if f := p.inspect(name).Fence; f != fence {
			t.Errorf("highwater of %q: %d, want %d", name, f, fence)
		}
	}
}

// A store without bounds for the server's clock must get them by its first release.
func TestNewStoreReleases(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server))
	warm := p.request("the server knows the script")
	p.mustRelease(warm, p.mustAcquire(warm))
	for what, undo := range map[string]func(s *redisstore.Store, r driver.AcquireRequest) error{
		"release": func(s *redisstore.Store, r driver.AcquireRequest) error {
			freed, err := s.Release(t.Context(), driver.ReleaseRequest{Name: r.Name, Token: r.Token})
			if err == nil && !freed {
				err = dibs.ErrLost
			}
			return err
		},
		"cancel": func(s *redisstore.Store, r driver.AcquireRequest) error { return s.Cancel(t.Context(), r) },
	} {
		r := p.request(what)
		p.mustAcquire(r)
		conn := redistest.Dial(server.Addr())
		t.Cleanup(conn.Close)
		counted := &slowConn{Conn: conn, passed: make(chan struct{}, 100)}
		s := redisstore.New(counted)
		if err := undo(s, r); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if state := p.inspect(what); state.Holding > 0 {
			t.Errorf("%s: %+v", what, state)
		}
		if n := len(counted.passed); n != 2 {
			t.Errorf("%s: %d exchanges of a new store, want 2", what, n)
		}
		again := p.request(what)
		p.mustAcquire(again)
		if err := undo(s, again); err != nil || len(counted.passed) != 3 {
			t.Errorf("%s: %v, %d exchanges after the second, want 3", what, err, len(counted.passed))
		}
	}
}
