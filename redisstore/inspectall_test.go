package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A stateWriter writes the keys for names, each with a random state without changes for half an
// hour.
type stateWriter struct {
	t      *testing.T
	server *redistest.Server
	r      *rand.Rand
	name   string
	key    string // the lock key
	serial int
}

func (w *stateWriter) cmd(words ...string) { w.t.Helper(); w.server.MustCmd(w.t, words...) }

func (w *stateWriter) token() string {
	w.serial++
	kinds := []string{"", "m-", "s4-", "r-", "w-", "a-", "e-", "o-"}
	token := fmt.Sprintf("web-7:211:q3ZkAbCdEfGhIjKl:%s%08d", kinds[w.r.IntN(len(kinds))], w.serial)
	switch w.r.IntN(4) {
	case 0:
		return fmt.Sprintf("%s:label %d", token, w.serial)
	case 1:
		return fmt.Sprintf("chosen %d", w.serial)
	}
	return token
}

// away is about how far the states' instants are from now. roundTimes rounds their distances to
// away.
const (
	away   = 2 * time.Hour
	awayMS = "7200000"
)

// past and future return an instant in units. Its distance is away, plus or minus up to a quarter,
// so that it is rounded to away even after the machine stalled for a while.
func (w *stateWriter) past(unit time.Duration) string { return instant(-w.distance(), unit) }

func (w *stateWriter) future(unit time.Duration) string { return instant(w.distance(), unit) }

func (w *stateWriter) distance() time.Duration {
	return away*3/4 + time.Duration(w.r.Int64N(int64(away/2)))
}

// instant returns the instant in d from now.
func instant(d, unit time.Duration) string {
	return strconv.FormatInt(time.Now().Add(d).UnixNano()/int64(unit), 10)
}

func (w *stateWriter) exclusive() {
	token := w.token()
	fence := ""
	if w.r.IntN(2) == 0 {
		fence = strconv.Itoa(1+w.r.IntN(99)) + " "
	}
	w.cmd("SET", w.key, fence+token, "PX", awayMS)
	switch w.r.IntN(3) {
	case 0:
		w.cmd("HSET", "{"+w.key+"}"+meta, "=", "17 web-7:211:q3ZkAbCdEfGhIjKl "+token)
	case 1:
		w.cmd("HSET", "{"+w.key+"}"+meta, "=", "17 web-7:211:q3ZkAbCdEfGhIjKl another")
	}
}

func (w *stateWriter) reserved() {
	w.cmd("SET", w.key, []string{"", "17 "}[w.r.IntN(2)]+w.token()+" reserved", "PX", awayMS)
}

func (w *stateWriter) shared() {
	w.cmd("SET", w.key, "dibs:shared 9", "PX", awayMS)
	for range cmp.Or(w.r.IntN(4), 120) {
		token, expires := w.token(), w.future(time.Millisecond)
		if w.r.IntN(4) == 0 {
			expires = w.past(time.Millisecond)
		}
		w.cmd("ZADD", "{"+w.key+"}"+shared, expires, token)
		if w.r.IntN(4) > 0 {
			w.cmd("HSET", "{"+w.key+"}"+meta, "="+token, fmt.Sprintf("%d %d web-7:211:q3ZkAbCdEfGhIjKl", 1+w.r.IntN(9), w.r.IntN(99)))
		}
	}
}

func (w *stateWriter) sharedWithoutHolders() { w.cmd("SET", w.key, "dibs:shared 2", "PX", awayMS) }

// staleHolders adds the holders of an expired lock.
func (w *stateWriter) staleHolders() {
	w.cmd("ZADD", "{"+w.key+"}"+shared, w.future(time.Millisecond), w.token())
}

func (w *stateWriter) foreignString() {
	values := []string{someUUID, "17", "", "{}", strings.Repeat("x", 5000), "web-7"}
	w.cmd("SET", w.key, values[w.r.IntN(len(values))])
	if w.r.IntN(2) == 0 {
		w.cmd("PEXPIRE", w.key, awayMS)
	}
}

func (w *stateWriter) foreignHash() {
	w.cmd("HSET", w.key, redissonClient+":40", "1")
	w.cmd("PEXPIRE", w.key, awayMS)
}

func (w *stateWriter) otherType() {
	commands := []string{"SADD %s a", "RPUSH %s a", "HSET %s f v", "ZADD %s 1 a", "XADD %s * f v"}
	w.cmd(strings.Fields(strings.ReplaceAll(commands[w.r.IntN(len(commands))], "%s", w.key))...)
}

func (w *stateWriter) otherTypeBeside() {
	keys := []string{queue, meta, shared}
	w.shared()
	key := "{" + w.key + "}" + keys[w.r.IntN(len(keys))]
	w.cmd("DEL", key)
	w.cmd("SET", key, "data")
}

func (w *stateWriter) free() {}

func (w *stateWriter) waiters() {
	for range cmp.Or(w.r.IntN(4), 120) {
		shares := []string{"1/1", "1/1+", "2/4", "1/2147483647", "2147483647/2147483647*"}
		entry := fmt.Sprintf("%016x 5000 %s web-7:211:q3ZkAbCdEfGhIjKl %s", w.serial, shares[w.r.IntN(len(shares))], w.token())
		ticket := w.past(time.Microsecond)
		if w.r.IntN(2) == 0 {
			ticket = w.future(time.Microsecond)
		}
		if w.r.IntN(4) == 0 { // passed over
			n, _ := strconv.ParseInt(ticket, 10, 64)
			ticket = strconv.FormatInt(n+1<<52, 10)
		}
		w.cmd("ZADD", "{"+w.key+"}"+queue, ticket, entry)
		switch w.r.IntN(3) {
		case 0:
			w.cmd("HSET", "{"+w.key+"}"+meta, entry, w.future(time.Microsecond))
		case 1:
			w.cmd("HSET", "{"+w.key+"}"+meta, entry, w.past(time.Microsecond))
		}
	}
}

// write gives a name a random state.
func (w *stateWriter) write(prefix, name string) {
	w.name, w.key = name, prefix+name
	states := []func(){
		w.free, w.exclusive, w.exclusive, w.exclusive, w.reserved, w.shared, w.sharedWithoutHolders, w.staleHolders,
		w.foreignString, w.foreignHash, w.otherType, w.otherTypeBeside,
	}
	chosen := w.r.IntN(len(states))
	states[chosen]()
	if chosen < len(states)-1 && w.r.IntN(4) == 0 {
		w.waiters()
	}
}

// InspectAll returns the same states as Inspect, whatever the keys hold, in the names' order. A
// value with another type does not disturb other names.
func TestInspectAllEqualsInspect(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		start   func(testing.TB) *redistest.Server
		prefix  string
		options []redisstore.Option
	}{
		"one server": {func(t testing.TB) *redistest.Server { return redistest.Start(t) }, "lock:", nil},
		"no prefix":  {func(t testing.TB) *redistest.Server { return redistest.Start(t) }, "", []redisstore.Option{redisstore.Prefix("")}},
		"cluster":    {func(t testing.TB) *redistest.Server { return redistest.StartClusterNode(t) }, "lock:", []redisstore.Option{redisstore.HiddenCluster()}},
		"redisson":   {func(t testing.TB) *redistest.Server { return redistest.Start(t) }, "", []redisstore.Option{redisstore.Redisson()}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := test.start(t)
			s := open(t, server, test.options...)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			w := &stateWriter{t: t, server: server, r: rand.New(rand.NewPCG(seed, 0))}
			const count = 250
			var names []string
			for i := range count {
				name := fmt.Sprintf("n%d", i)
				if i%3 == 0 {
					name = fmt.Sprintf("{together}%d", i) // in the same slot
				}
				w.write(test.prefix, name)
				names = append(names, name)
			}
			w.r.Shuffle(count, func(i, j int) { names[i], names[j] = names[j], names[i] })
			names = append(names, names[0]) // twice
			states, err := s.InspectAll(t.Context(), names)
			if err != nil || len(states) != len(names) {
				t.Fatalf("%d states, %v: want %d", len(states), err, len(names))
			}
			for i, name := range names {
				want, err := s.Inspect(t.Context(), name)
				var wrong *driver.WrongTypeError
				if errors.As(err, &wrong) {
					want, err = wrong.State, nil
				}
				if err != nil {
					t.Fatal(name, err)
				}
				have, expected := fieldsOf(roundTimes(states[i])), fieldsOf(roundTimes(want))
				if states[i].Name != name || !reflect.DeepEqual(have, expected) {
					t.Errorf("%s: %+v\nwant %+v", name, have, expected)
				}
			}
		})
	}
}

// fieldsOf returns a state's fields. The state contains no nodes, whose errors could not be
// compared. InspectAll can omit the fence high-water mark.
func fieldsOf(s driver.State) []any {
	return []any{s.Name, s.Holders, s.Holding, s.Waiters, s.Waiting, s.Foreign, len(s.Nodes)}
}

// roundTimes removes the differences between two calls from a state.
func roundTimes(s driver.State) driver.State {
	round := func(d time.Duration) time.Duration {
		if d < 0 {
			return d
		}
		return d.Round(away)
	}
	s.Holders, s.Waiters = slices.Clone(s.Holders), slices.Clone(s.Waiters)
	for i := range s.Holders {
		s.Holders[i].Remaining = round(s.Holders[i].Remaining)
	}
	for i := range s.Waiters {
		s.Waiters[i].Waited = round(s.Waiters[i].Waited)
	}
	if s.Foreign != nil {
		f := *s.Foreign
		f.Remaining = round(f.Remaining)
		if f.Mark != nil {
			f.Mark = reflect.TypeOf(f.Mark)
		}
		s.Foreign = &f
	}
	return s
}

// holdMany holds names, with tokens in dibs' format.
func (p *testClient) holdMany(count int) (names []string) {
	p.client = "host:77:kFLLirqc6sneINPI"
	for i := range count {
		r := p.request(fmt.Sprintf("n%d", i))
		p.mustAcquire(r)
		names = append(names, r.Name)
	}
	return names
}

// wantHeld inspects names and expects all to be held.
func (p *testClient) wantHeld(names []string) {
	p.t.Helper()
	states, err := p.s.InspectAll(p.t.Context(), names)
	if err != nil || len(states) != len(names) {
		p.t.Fatalf("%d states, %v: want %d", len(states), err, len(names))
	}
	for i, s := range states {
		if s.Name != names[i] || s.Holding != 1 || s.Holders[0].Remaining <= 0 {
			p.t.Fatalf("%+v, want that %q is held", s, names[i])
		}
	}
}

// A mutex without waiters costs three commands, and no script. The script inspects the others.
func TestCommandsOfInspectAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server))
	const count = 201
	names := p.holdMany(count)
	inspect := func() { p.wantHeld(names) }
	p.inspect("n") // loads the script
	if all, runs := countCommands(t, server, inspect); all != 3*count || runs != 0 {
		t.Errorf("%d commands and %d scripts, want %d and none", all, runs, 3*count)
	}
	p.mustWait(p.request("n7"))
	reader := p.request("shared")
	reader.Limit = 2
	p.mustAcquire(reader)
	names = append(names, "shared")
	// TIME, EXISTS, and for each name: the high-water mark and the lock; then the queue.
	const inner = 2 + 2*2 + (2 + 1) + (1 + 3 + 1)
	if all, runs := countCommands(t, server, inspect); all != 3*(count+1)+inner || runs != 1 {
		t.Errorf("with a queue and a reader: %d commands and %d scripts, want %d and one", all, runs, 3*(count+1)+inner)
	}
}

// Where names can be those of data, a mutex without waiters should cost three commands by the
// script, and a tenth of a command for the search for queues.
func TestCommandsOfInspectAllByScript(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	const count = 200
	names := p.holdMany(count)
	inspect := func() { p.wantHeld(names) }
	inspect() // loads the script
	const perCall = 1 + 100*3 + 10
	if each, runs := countCommands(t, server, inspect); each != perCall || runs != 2 {
		t.Errorf("%d commands in each of %d calls, want %d in 2", each, runs, perCall)
	}
	p.mustWait(p.request("n7"))
	const group = 10 // names whose queues are read because one name has a waiter
	if each, runs := countCommands(t, server, inspect); each != perCall+(group+1)/2 || runs != 2 {
		t.Errorf("with a waiter: %d commands in each of %d calls", each, runs)
	}
	server.MustCmd(t, "SADD", "n3x", "data")
	names = slices.Insert(names, 3, "n3x")
	inspectSome := func() {
		if states, err := p.s.InspectAll(t.Context(), names); err != nil || states[3].Holding != 0 || states[count].Holding != 1 {
			t.Errorf("%d states, %v", len(states), err)
		}
	}
	inspectSome()   // loads the script describe
	const alone = 2 // inspect, and describe
	if _, runs := countCommands(t, server, inspectSome); runs != (count+1+99)/100+alone {
		t.Errorf("with a key of another type: %d calls", runs)
	}
}

// A value that cannot be a lock is data. From then on the store should read no whole values.
func TestInspectAllReadsNoDataAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server))
	names := p.holdMany(3)
	inspect := func() { p.wantHeld(names) }
	const size = 4097 // a byte longer than a token
	server.MustCmd(t, "SET", "lock:data", strings.Repeat("x", size), "PX", "3600000")
	names = append(names, "data")
	inspect()
	const perCall = 1 + 3*3 + 4 + 1
	if all, runs := countCommands(t, server, inspect); all != perCall || runs != 1 {
		t.Errorf("%d commands and %d scripts, want the %d of one script", all, runs, perCall)
	}
}

// A plainConn handles commands other than scripts in its own way.
type plainConn struct {
	redisconn.Conn
	do func(cmds []redisconn.Cmd, replies []redisconn.Reply)
}

func (c plainConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if cmds[0].Script == nil {
		c.do(cmds, replies)
		return
	}
	c.Conn.Do(ctx, until, cmds, replies)
}

func openPlain(t *testing.T, server *redistest.Server, do func(cmds []redisconn.Cmd, replies []redisconn.Reply), options ...redisstore.Option) *redisstore.Store {
	conn := redistest.Dial(server.Addr())
	t.Cleanup(conn.Close)
	return redisstore.New(plainConn{conn, do}, options...)
}

// Only scripts should inspect a cluster's names, and names whose keys are not strings.
func TestInspectAllByScriptOnly(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		server  *redistest.Server
		options []redisstore.Option
	}{
		"cluster":  {redistest.StartClusterNode(t), []redisstore.Option{redisstore.HiddenCluster()}},
		"redisson": {redistest.Start(t), []redisstore.Option{redisstore.Redisson(), redisstore.Prefix("redisson:")}},
	} {
		p := newClient(t, openPlain(t, c.server, func(cmds []redisconn.Cmd, _ []redisconn.Reply) {
			t.Errorf("%s: sent %q", what, cmds[0].Args)
		}, c.options...))
		p.wantHeld(p.holdMany(3))
	}
}

// The script inspects the names whose plain commands failed.
func TestInspectAllWithoutPlainCommands(t *testing.T) {
	t.Parallel()
	for what, failure := range map[string]error{"refused": redisconn.ServerError("NOPERM no get"), "broken": io.ErrUnexpectedEOF} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var failed atomic.Int32
			p := newClient(t, openPlain(t, server, func(_ []redisconn.Cmd, replies []redisconn.Reply) {
				failed.Add(1)
				for i := range replies {
					replies[i].Err = failure
				}
			}))
			p.wantHeld(p.holdMany(300))
			if failed.Load() == 0 {
				t.Error("no plain commands were sent")
			}
		})
	}
}

// InspectAll returns when its context ends, although the Conn does not.
func TestInspectAllDoesNotWaitForConn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	called, over := make(chan struct{}, 10), make(chan struct{})
	defer close(over)
	p := newClient(t, openPlain(t, server, func([]redisconn.Cmd, []redisconn.Reply) {
		called <- struct{}{}
		<-over
	}))
	names := p.holdMany(3)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error, 1)
	go func() {
		_, err := p.s.InspectAll(ctx, names)
		returned <- err
	}()
	<-called
	cancel()
	select {
	case err := <-returned:
		wantIs(t, "a context that has ended", err, context.Canceled)
	case <-time.After(generous):
		t.Fatal("InspectAll does not return")
	}
}

// With many holders and waiters, a call returns a few names' states, and the next call the other
// names'.
func TestInspectAllBoundsEachCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := newClient(t, open(t, server, redisstore.Prefix("")))
	const count, each = 30, 150
	var names []string
	later := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	for i := range count {
		name := fmt.Sprintf("n%d", i)
		cmd := []string{"ZADD", "{" + name + "}" + shared}
		for j := range each {
			cmd = append(cmd, later, fmt.Sprintf("%s:r-%08d", p.client, j))
		}
		server.MustCmd(t, cmd...)
		server.MustCmd(t, "SET", name, fmt.Sprintf("dibs:shared %d", each), "PX", "3600000")
		addEntries(t, server, name, p.client, "1/1", each)
		names = append(names, name)
	}
	var states []driver.State
	inspect := func() {
		var err error
		if states, err = p.s.InspectAll(t.Context(), names); err != nil {
			t.Fatal(err)
		}
	}
	inspect()
	commands, runs := countCommands(t, server, inspect)
	for i, s := range states {
		if s.Name != names[i] || s.Holding != each || len(s.Holders) != 100 || s.Waiting != each || len(s.Waiters) != 100 {
			t.Errorf("%s: %d of %d holders, %d of %d waiters", s.Name, len(s.Holders), s.Holding, len(s.Waiters), s.Waiting)
		}
	}
	const perCall = 3 // states with 703 fields, until there are 2000
	if runs != count/perCall || commands > maxCommands {
		t.Errorf("%d calls of %d commands, want %d", runs, commands, count/perCall)
	}
}

// Large values are other programs' data. A call reads few.
func TestInspectAllBoundsLargeValues(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server, redisstore.Prefix(""))
	const count, size = 12, 1<<18 + 1
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("n%d", i))
		server.MustCmd(t, "SET", names[i], strings.Repeat("x", size))
	}
	inspect := func() {
		states, err := s.InspectAll(t.Context(), names)
		if err != nil || len(states) != count || states[count-1].Foreign == nil || states[count-1].Foreign.Lock {
			t.Errorf("%d states, %v: want data", len(states), err)
		}
	}
	inspect()
	const perCall = 4 // until they are 1 MiB
	if _, runs := countCommands(t, server, inspect); runs != count/perCall {
		t.Errorf("%d calls, want %d", runs, count/perCall)
	}
}

func TestInspectAllFails(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server)
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("n%d", i)
	}
	if states, err := s.InspectAll(t.Context(), nil); err != nil || len(states) > 0 {
		t.Errorf("no names: %+v, %v", states, err)
	}
	for _, name := range []string{"", "\xff", "n:dibs:queue"} {
		_, err := s.InspectAll(t.Context(), append(slices.Clone(many), name))
		wantIs(t, fmt.Sprintf("name %q", name), err, driver.ErrInvalid)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.InspectAll(over, many)
	wantIs(t, "a context that has ended", err, context.Canceled)
	wantIs(t, "a context that has ended", err, driver.ErrUnavailable)
	server.MustCmd(t, "ACL", "SETUSER", "default", "resetkeys", "~lock:n1*", "~{lock:n1*", "~dibs:*")
	all, err := s.InspectAll(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	for i, state := range all {
		if isPermitted := strings.HasPrefix(many[i], "n1"); state.Name != many[i] || (state.Err == nil) != isPermitted {
			t.Errorf("name %q: %+v", many[i], state)
		}
	}
	if states, err := s.InspectAll(t.Context(), []string{"n1", "n10", "n100"}); err != nil || len(states) != 3 {
		t.Errorf("permitted names: %+v, %v", states, err)
	}
}
