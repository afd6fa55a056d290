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
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// copying is a Conn to a server whose replicas the test plays.
type copying struct {
	*redistest.Conn
	acks  chan redisstore.Reply // what WAIT answers, when it does
	asked atomic.Int64          // how often it was asked
	waits atomic.Value          // how it was asked last
	heard atomic.Int64          // answers that the store waits for replicas of
	over  chan struct{}         // the test is
}

func (c *copying) Replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) redisstore.Reply {
	c.asked.Add(1)
	c.waits.Store(strings.Join(wait, " "))
	var reply [1]redisstore.Reply
	c.Do(ctx, []redisstore.Cmd{cmd}, reply[:])
	if !answered(reply[0]) {
		<-c.over // nobody may wait for it
		return redisstore.Reply{}
	}
	c.heard.Add(1)
	select {
	case ack := <-c.acks:
		return ack
	case <-ctx.Done(): // an answer is for who waits, not for who has gone
		return redisstore.Reply{Err: ctx.Err()}
	}
}

// copied returns a store that waits for two replicas, for an hour if need be.
func copied(t *testing.T) (*redisstore.Store, *copying) {
	conn := &copying{Conn: redistest.Dial(redistest.Start(t).Addr()), acks: make(chan redisstore.Reply, 100), over: make(chan struct{})}
	t.Cleanup(func() { close(conn.acks); close(conn.over); conn.Close() })
	return redisstore.New(conn, redisstore.WithReplicas(2, time.Hour)), conn
}

func (c *copying) answer(n int64) { c.acks <- redisstore.Reply{Value: n} }

// wantShort checks what an error says of the replicas.
func wantShort(t *testing.T, err error, have int, refused bool) {
	t.Helper()
	var short *redisstore.ReplicasError
	var unavailable *dibs.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Refused != refused || !errors.As(err, &short) {
		t.Fatalf("error %v, want one of replicas, refused %v", err, refused)
	}
	if short.Have != have || short.Want != 2 {
		t.Errorf("%v: want %d of 2", err, have)
	}
}

func TestReplicasHaveIt(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	p := mute(t, s)
	conn.answer(2)
	c := p.claim("n")
	fence := p.take(c)
	conn.answer(3)
	if err := p.s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: c.Token, Client: c.Client, TTL: time.Minute}})[0]; err != nil {
		t.Errorf("extend: %v", err)
	}
	before := conn.asked.Load()
	p.free(c, fence)
	if conn.asked.Load() != before {
		t.Error("a release waits for replicas")
	}
}

// What too few replicas have is given back, also to those who wait, and the error
// tells how many have it.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	p := mute(t, s)
	c := p.claim("n")
	c.Until = time.Now().Add(generous)
	conn.answer(1)
	_, err := s.Acquire(t.Context(), c)
	wantShort(t, err, 1, true)
	if text := err.Error(); !strings.Contains(text, "1 of 2 replicas") || !strings.Contains(text, "given back") {
		t.Errorf("%q", text)
	}
	if state := p.inspect("n"); state.Holding > 0 || state.Waiting > 0 {
		t.Errorf("%+v is left", state)
	}
	set := p.claim("a")
	set.With, set.Until = []string{"b"}, time.Now().Add(generous)
	conn.answer(0)
	_, err = s.Acquire(t.Context(), set)
	wantShort(t, err, 0, true)
	for _, name := range []string{"a", "b"} {
		if state := p.inspect(name); state.Holding > 0 || state.Waiting > 0 {
			t.Errorf("%+v is left", state)
		}
	}
}

// A renewal that too few replicas have is not known to have happened, and a lease
// that is not held is lost whatever the replicas say.
func TestTooFewReplicasOfARenewal(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	p := mute(t, s)
	conn.answer(2)
	c := p.claim("n")
	p.take(c)
	conn.answer(0)
	errs := s.Extend(t.Context(), []driver.ExtendRequest{
		{Name: "n", Token: c.Token, Client: c.Client, TTL: time.Minute},
		{Name: "m", Token: c.Token, Client: c.Client, TTL: time.Minute},
	})
	wantShort(t, errs[0], 0, false)
	if !errors.Is(errs[1], dibs.ErrLost) {
		t.Errorf("%v, want it lost", errs[1])
	}
	if state := p.inspect("n"); state.Holding != 1 {
		t.Errorf("%+v, want it held", state)
	}
}

// Who finds a name taken does not wait for replicas.
func TestFailedTriesDoNotWaitForReplicas(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	p := mute(t, s)
	conn.answer(2)
	p.take(p.claim("n"))
	try := p.claim("n")
	try.Queue = false
	if a := p.ask(try); a.Held { // WAIT is not answered
		t.Fatalf("%+v", a)
	}
	if a := p.ask(p.claim("n")); a.Held || a.Position != 1 {
		t.Fatalf("%+v", a)
	}
}

// When the replicas were silent, only who holds asks them again, until they answer.
func TestSilentReplicasAreAskedByHoldersOnly(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	p := mute(t, s)
	holder := p.claim("n")
	conn.answer(2)
	p.take(holder)
	c := p.claim("m")
	c.Until = time.Now().Add(generous)
	conn.answer(0)
	_, err := s.Acquire(t.Context(), c)
	wantShort(t, err, 0, true)
	before := conn.asked.Load()
	for range 10 {
		try := p.claim("n")
		try.Queue = false
		if a := p.ask(try); a.Held {
			t.Fatalf("%+v", a)
		}
	}
	if n := conn.asked.Load() - before; n != 0 {
		t.Errorf("%d of 10 failed tries asked the replicas", n)
	}
	conn.answer(2)
	p.take(c)
	if n := conn.asked.Load() - before; n != 1 {
		t.Errorf("%d questions with WAIT, want 1", n)
	}
	p.ask(p.claim("n"))
	if n := conn.asked.Load() - before; n != 2 {
		t.Errorf("%d questions with WAIT after they answered, want 2", n)
	}
}

// The wait is bounded by the claim's own time, and leaves some of it to give the name
// back. A caller who goes away is not kept.
func TestWaitForReplicasIsBounded(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	p := mute(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	c := p.claim("n")
	c.Until = time.Now().Add(generous)
	failed := make(chan error)
	go func() {
		_, err := s.Acquire(ctx, c)
		failed <- err
	}()
	for conn.heard.Load() == 0 {
		select {
		case err := <-failed:
			t.Fatalf("it does not wait for the replicas: %v", err)
		case <-time.After(time.Millisecond): // polls
		}
	}
	cancel()
	wantShort(t, <-failed, 0, true)
	if state := p.inspect("n"); state.Holding > 0 {
		t.Errorf("%+v is left", state)
	}
	if wait, _ := conn.waits.Load().(string); wait < "WAIT 2 5000" || wait > "WAIT 2 7500" {
		t.Errorf("%s, want three quarters of %v", wait, generous)
	}
}

// What WAIT answers is not believed blindly.
func TestReplicasAnswerNonsense(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	for _, reply := range []redisstore.Reply{{}, {Value: "2"}, {Value: int64(-1)}, {Err: redisstore.ServerError("NOPERM no WAIT for you")}} {
		c := mute(t, s).claim("n")
		c.Until = time.Now().Add(generous)
		conn.acks <- reply
		_, err := s.Acquire(t.Context(), c)
		var short *redisstore.ReplicasError
		if !errors.As(err, &short) || reply.Err != nil && !errors.Is(err, reply.Err) {
			t.Errorf("%v, want one of replicas for %+v", err, reply)
		}
	}
}

// A server that does not know the script gets it whole.
func TestReplicasAndAnUnknownScript(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
	if _, err := conn.Call(t.Context(), "SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	conn.answer(2)
	p := mute(t, s)
	p.take(p.claim("n"))
}

// A push only makes the waiter ask, so that the replicas are asked, too.
func TestPushIsConfirmedByReplicas(t *testing.T) {
	t.Parallel()
	s, conn := copied(t)
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
	before := conn.asked.Load()
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	for conn.asked.Load() == before {
		select {
		case l := <-second:
			t.Fatalf("%+v has it, and the replicas were not asked", l)
		case <-time.After(time.Millisecond): // polls
		}
	}
	select {
	case l := <-second:
		t.Fatalf("%+v has it before the replicas do", l)
	default:
	}
	for range 10 { // it may ask more than once: an operation takes long on a busy machine
		conn.answer(2)
	}
	if l := <-second; l == nil || l.Fence() <= first.Fence() {
		t.Errorf("fence after %d: %+v", first.Fence(), l)
	}
}

func TestBadReplicas(t *testing.T) {
	t.Parallel()
	conn := redistest.Dial("127.0.0.1:1")
	defer conn.Close()
	for _, option := range []redisstore.Option{
		redisstore.WithReplicas(0, time.Second), redisstore.WithReplicas(-1, time.Second),
		redisstore.WithReplicas(1001, time.Second), redisstore.WithReplicas(1, 0), redisstore.WithReplicas(1, time.Microsecond),
	} {
		p := mute(t, redisstore.New(conn, option))
		if _, err := p.s.Acquire(t.Context(), p.claim("n")); !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%v, want it refused", err)
		}
	}
}

// A failing server does what was asked with WAIT, and then nothing any more.
type failing struct {
	*copying
	failed atomic.Bool
}

func (f *failing) Do(ctx context.Context, cmds []redisstore.Cmd, replies []redisstore.Reply) {
	if !f.failed.Load() {
		f.copying.Do(ctx, cmds, replies)
		return
	}
	for i := range replies {
		replies[i].Err = errors.New("connection reset")
	}
}

func (f *failing) Replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) redisstore.Reply {
	return f.copying.Replicate(ctx, cmd, wait, func(r redisstore.Reply) bool {
		counts := answered(r)
		f.failed.Store(counts)
		return counts
	})
}

// A refusing server does not do what is asked with WAIT, once it is told so.
type refusing struct {
	*copying
	refuses atomic.Bool
}

func (f *refusing) Replicate(ctx context.Context, cmd, wait redisstore.Cmd, answered func(redisstore.Reply) bool) redisstore.Reply {
	if f.refuses.Load() {
		answered(redisstore.Reply{Err: redisstore.ServerError("OOM command not allowed")})
		return redisstore.Reply{}
	}
	return f.copying.Replicate(ctx, cmd, wait, answered)
}

// What is held though the call fails is not told as refused: nobody would undo it.
func TestFailuresWithReplicasAreUnknown(t *testing.T) {
	t.Parallel()
	t.Run("it cannot be given back", func(t *testing.T) {
		_, conn := copied(t)
		s := redisstore.New(&failing{copying: conn}, redisstore.WithReplicas(2, 50*time.Millisecond))
		c := mute(t, s).claim("n")
		c.Until = time.Now().Add(400 * time.Millisecond)
		conn.answer(0)
		_, err := s.Acquire(t.Context(), c)
		wantShort(t, err, 0, false)
		if left := time.Until(c.Until); left > 0 {
			t.Errorf("back %v before the release is void: it could free the next try's lease", left)
		}
	})
	t.Run("it is held, and refused with the question for the replicas", func(t *testing.T) {
		_, copies := copied(t)
		conn := &refusing{copying: copies}
		s := redisstore.New(conn, redisstore.WithReplicas(2, time.Hour))
		p := mute(t, s)
		c := p.claim("m")
		c.Until = time.Now().Add(generous)
		conn.answer(0) // so that they are asked by holders only
		_, err := s.Acquire(t.Context(), c)
		wantShort(t, err, 0, true)
		conn.refuses.Store(true)
		_, err = s.Acquire(t.Context(), c)
		var unavailable *dibs.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Refused {
			t.Fatalf("error %v, want that the outcome is not known", err)
		}
		if state := p.inspect("m"); state.Holding != 1 {
			t.Errorf("%+v", state)
		}
	})
}
