package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// replicatedConn is a Conn to a server whose replicas are simulated by the test.
type replicatedConn struct {
	*redistest.Conn
	acks     chan redisconn.Reply // replies to WAIT
	calls    atomic.Int64         // calls to Replicate
	lastWait atomic.Value         // the last WAIT command
	awaited  atomic.Int64         // replies for which the store awaits the replicas
	done     chan struct{}        // closed when the test ends
}

func (c *replicatedConn) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	c.calls.Add(1)
	command := wait.Cmd()
	c.lastWait.Store(strings.Join(command.Words(), " "))
	var reply [1]redisconn.Reply
	c.Do(ctx, time.Time{}, []redisconn.Cmd{call}, reply[:])
	if !answered(reply[0]) {
		<-c.done // nobody may wait for it
		return redisconn.Reply{}
	}
	c.awaited.Add(1)
	select {
	case ack := <-c.acks:
		return ack
	case <-ctx.Done(): // a reply for a waiting caller
		return redisconn.Reply{Err: ctx.Err()}
	}
}

// newReplicated returns a store that waits for two replicas, for an hour at most.
func newReplicated(t *testing.T) (*redisstore.Store, *replicatedConn) {
	conn := &replicatedConn{Conn: redistest.Dial(redistest.Start(t).Addr()), acks: make(chan redisconn.Reply, 100), done: make(chan struct{})}
	t.Cleanup(func() { close(conn.acks); close(conn.done); conn.Close() })
	return redisstore.New(conn, redisstore.WithReplicas(2, time.Hour)), conn
}

func (c *replicatedConn) answer(n int64) { c.acks <- redisconn.Reply{Value: n} }

// wantReplicasError checks an error's details about the replicas.
func wantReplicasError(t *testing.T, err error, have int, refused bool) {
	t.Helper()
	var short *redisstore.ReplicasError
	var unavailable *driver.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Refused != refused || !errors.As(err, &short) {
		t.Fatalf("error %v, want a ReplicasError, refused %v", err, refused)
	}
	if short.Have != have || short.Want != 2 {
		t.Errorf("%v: want %d of 2", err, have)
	}
}

func TestReplicasAcknowledge(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	p := newClient(t, s)
	conn.answer(2)
	r := p.request("n")
	fence := p.mustAcquire(r)
	conn.answer(3)
	if err := p.s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: r.Token, Client: r.Client, TTL: time.Minute}})[0]; err != nil {
		t.Errorf("extend: %v", err)
	}
	before := conn.calls.Load()
	p.mustRelease(r, fence)
	if conn.calls.Load() != before {
		t.Error("a release waits for replicas")
	}
}

// A lock that too few replicas have is released, even if the request waits, and the error
// contains how many replicas have it.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	p := newClient(t, s)
	r := p.request("n")
	r.Until = time.Now().Add(generous)
	conn.answer(1)
	_, err := s.Acquire(t.Context(), r)
	wantReplicasError(t, err, 1, true)
	if text := err.Error(); !strings.Contains(text, "1 of 2 replicas") || !strings.Contains(text, "released") {
		t.Errorf("%q", text)
	}
	if state := p.inspect("n"); state.Holding > 0 || state.Waiting > 0 {
		t.Errorf("%+v is left", state)
	}
	set := p.request("a")
	set.With, set.Until = []string{"b"}, time.Now().Add(generous)
	conn.answer(0)
	_, err = s.Acquire(t.Context(), set)
	wantReplicasError(t, err, 0, true)
	for _, name := range []string{"a", "b"} {
		if state := p.inspect(name); state.Holding > 0 || state.Waiting > 0 {
			t.Errorf("%+v is left", state)
		}
	}
}

// The outcome of a renewal that too few replicas have is unknown. A lease that is not held is
// lost, whatever the replicas reply.
func TestTooFewReplicasOfARenewal(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	p := newClient(t, s)
	conn.answer(2)
	r := p.request("n")
	p.mustAcquire(r)
	conn.answer(0)
	errs := s.Extend(t.Context(), []driver.ExtendRequest{
		{Name: "n", Token: r.Token, Client: r.Client, TTL: time.Minute},
		{Name: "m", Token: r.Token, Client: r.Client, TTL: time.Minute},
	})
	wantReplicasError(t, errs[0], 0, false)
	if !errors.Is(errs[1], dibs.ErrLost) {
		t.Errorf("%v, want it lost", errs[1])
	}
	if state := p.inspect("n"); state.Holding != 1 {
		t.Errorf("%+v, want it held", state)
	}
}

// A request that finds the name busy does not wait for replicas.
func TestBusyTriesDoNotAwaitReplicas(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	p := newClient(t, s)
	conn.answer(2)
	p.mustAcquire(p.request("n"))
	try := p.request("n")
	try.Queue = false
	if a := p.acquire(try); a.Held { // WAIT is not answered
		t.Fatalf("%+v", a)
	}
	if a := p.acquire(p.request("n")); a.Held || a.Position != 1 {
		t.Fatalf("%+v", a)
	}
}

// After WAIT timed out, only holders use it again, until the replicas reply.
func TestUnresponsiveReplicasAreAwaitedByHoldersOnly(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	p := newClient(t, s)
	holder := p.request("n")
	conn.answer(2)
	p.mustAcquire(holder)
	r := p.request("m")
	r.Until = time.Now().Add(generous)
	conn.answer(0)
	_, err := s.Acquire(t.Context(), r)
	wantReplicasError(t, err, 0, true)
	before := conn.calls.Load()
	for range 10 {
		try := p.request("n")
		try.Queue = false
		if a := p.acquire(try); a.Held {
			t.Fatalf("%+v", a)
		}
	}
	if n := conn.calls.Load() - before; n != 0 {
		t.Errorf("%d of 10 busy tries used WAIT", n)
	}
	conn.answer(2)
	p.mustAcquire(r)
	if n := conn.calls.Load() - before; n != 1 {
		t.Errorf("%d calls with WAIT, want 1", n)
	}
	p.acquire(p.request("n"))
	if n := conn.calls.Load() - before; n != 2 {
		t.Errorf("%d calls with WAIT after the replicas replied, want 2", n)
	}
}

// The wait should be bounded by the request's own time, and leave some time for the release. A
// caller that leaves should return at once.
func TestWaitForReplicasIsBounded(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	p := newClient(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	r := p.request("n")
	r.Until = time.Now().Add(generous)
	failed := make(chan error)
	go func() {
		_, err := s.Acquire(ctx, r)
		failed <- err
	}()
	for conn.awaited.Load() == 0 {
		select {
		case err := <-failed:
			t.Fatalf("it does not wait for the replicas: %v", err)
		case <-time.After(time.Millisecond): // polls
		}
	}
	cancel()
	wantReplicasError(t, <-failed, 0, true)
	if state := p.inspect("n"); state.Holding > 0 {
		t.Errorf("%+v is left", state)
	}
	if wait, _ := conn.lastWait.Load().(string); wait < "WAIT 2 5000" || wait > "WAIT 2 7500" {
		t.Errorf("%s, want three quarters of %v", wait, generous)
	}
}

// Replies to WAIT are checked.
func TestInvalidRepliesToWait(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	for _, reply := range []redisconn.Reply{{}, {Value: "2"}, {Value: int64(-1)}, {Err: redisconn.ServerError("NOPERM no WAIT for you")}} {
		r := newClient(t, s).request("n")
		r.Until = time.Now().Add(generous)
		conn.acks <- reply
		_, err := s.Acquire(t.Context(), r)
		var short *redisstore.ReplicasError
		if !errors.As(err, &short) || reply.Err != nil && !errors.Is(err, reply.Err) {
			t.Errorf("%v, want a ReplicasError for %+v", err, reply)
		}
	}
}

// A server that does not know the script gets its text.
func TestReplicasAndAnUnknownScript(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	if _, err := conn.Call(t.Context(), "SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	conn.answer(2)
	p := newClient(t, s)
	p.mustAcquire(p.request("n"))
}

// A notification should only make the waiter retry, so that it also awaits the replicas.
func TestNotifiedWaiterAwaitsReplicas(t *testing.T) {
	t.Parallel()
	s, conn := newReplicated(t)
	locks := dibs.New(s)
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*generous)
	defer cancel()
	conn.answer(2)
	first, err := locks.Mutex("n").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan *dibs.Lease, 1)
	go func() {
		l, err := locks.Mutex("n").Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		second <- l
	}()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		state, err := locks.Inspect(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		waiting = state.Waiting
	}
	before := conn.calls.Load()
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	for conn.calls.Load() == before {
		select {
		case l := <-second:
			t.Fatalf("%+v is granted without WAIT", l)
		case <-time.After(time.Millisecond): // polls
		}
	}
	select {
	case l := <-second:
		t.Fatalf("%+v is granted before the replicas have it", l)
	default:
	}
	for range 10 { // it may retry more than once: an operation takes long on a busy machine
		conn.answer(2)
	}
	if l := <-second; l == nil || l.Fence() <= first.Fence() {
		t.Errorf("fence after %d: %+v", first.Fence(), l)
	}
}

func TestInvalidReplicas(t *testing.T) {
	t.Parallel()
	conn := redistest.Dial("127.0.0.1:1")
	defer conn.Close()
	for _, option := range []redisstore.Option{
		redisstore.WithReplicas(0, time.Second), redisstore.WithReplicas(-1, time.Second),
		redisstore.WithReplicas(1001, time.Second), redisstore.WithReplicas(1, 0), redisstore.WithReplicas(1, time.Microsecond),
	} {
		p := newClient(t, redisstore.New(conn, option))
		if _, err := p.s.Acquire(t.Context(), p.request("n")); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v, want it refused", err)
		}
		locks := dibs.New(redisstore.New(conn, option)) // as a service does when it starts
		if err := locks.Check(t.Context()); !errors.Is(err, dibs.ErrInvalid) || !strings.Contains(err.Error(), "WithReplicas(") {
			t.Errorf("check: %v, want ErrInvalid with the option", err)
		}
		locks.Close()
	}
}

// A failingConn executes the command before WAIT, and then fails.
type failingConn struct {
	*replicatedConn
	failed atomic.Bool
}

func (f *failingConn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if !f.failed.Load() {
		f.replicatedConn.Do(ctx, until, cmds, replies)
		return
	}
	for i := range replies {
		replies[i].Err = errors.New("connection reset")
	}
}

func (f *failingConn) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	return f.replicatedConn.Replicate(ctx, call, wait, func(r redisconn.Reply) bool {
		counts := answered(r)
		f.failed.Store(counts)
		return counts
	})
}

// A refusingConn refuses a command with WAIT, once enabled.
type refusingConn struct {
	*replicatedConn
	refuses atomic.Bool
}

func (f *refusingConn) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	if f.refuses.Load() {
		answered(redisconn.Reply{Err: redisconn.ServerError("OOM command not allowed")})
		return redisconn.Reply{}
	}
	return f.replicatedConn.Replicate(ctx, call, wait, answered)
}

// If the lock is held though the call fails, the error is not Refused: otherwise nobody
// would undo it.
func TestFailuresWithReplicasAreUnknown(t *testing.T) {
	t.Parallel()
	t.Run("the lock cannot be released", func(t *testing.T) {
		_, conn := newReplicated(t)
		s := redisstore.New(&failingConn{replicatedConn: conn}, redisstore.WithReplicas(2, 50*time.Millisecond))
		r := newClient(t, s).request("n")
		r.Until = time.Now().Add(400 * time.Millisecond)
		conn.answer(0)
		_, err := s.Acquire(t.Context(), r)
		wantReplicasError(t, err, 0, false)
		if left := time.Until(r.Until); left > 0 {
			t.Errorf("returned %v before the release is void: it could release the next try's lease", left)
		}
	})
	t.Run("it is held, and the call with WAIT is refused", func(t *testing.T) {
		_, copies := newReplicated(t)
		conn := &refusingConn{replicatedConn: copies}
		s := redisstore.New(conn, redisstore.WithReplicas(2, time.Hour))
		p := newClient(t, s)
		r := p.request("m")
		r.Until = time.Now().Add(generous)
		conn.answer(0) // so that only holders use WAIT
		_, err := s.Acquire(t.Context(), r)
		wantReplicasError(t, err, 0, true)
		conn.refuses.Store(true)
		_, err = s.Acquire(t.Context(), r)
		var unavailable *driver.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Refused {
			t.Fatalf("error %v, want an unknown outcome", err)
		}
		if state := p.inspect("m"); state.Holding != 1 {
			t.Errorf("%+v", state)
		}
	})
}
