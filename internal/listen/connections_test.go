package listen_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/internal/listen"
)

// bench is Connections to a fake server.
type bench struct {
	t      *testing.T
	all    listen.Connections
	server fake
}

// run runs a test in a bubble, and checks that nothing is left at its end.
func run(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left and blocked
		b := &bench{t: t}
		test(b)
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		if _, open, _ := b.server.count(); open != 0 {
			t.Errorf("%d connections are open at the end", open)
		}
	})
}

// listener is a running call of Listen.
type listener struct {
	b      *bench
	cancel context.CancelFunc
	ended  chan error

	mu  sync.Mutex
	got []string
}

func (b *bench) listen(channel string) *listener {
	ctx, cancel := context.WithCancel(b.t.Context())
	l := &listener{b: b, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		l.ended <- b.all.Listen(ctx, listen.Server{}, b.server.Open, channel, func(message string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.got = append(l.got, message)
		})
	}()
	synctest.Wait()
	return l
}

// end ends the call, and waits until all that follows has happened.
func (l *listener) end() {
	l.b.t.Helper()
	l.cancel()
	synctest.Wait()
	l.wantEnd(context.Canceled)
}

func (l *listener) wantEnd(want error) {
	l.b.t.Helper()
	select {
	case err := <-l.ended:
		if !errors.Is(err, want) {
			l.b.t.Errorf("ended with %v, want %v", err, want)
		}
	default:
		l.b.t.Errorf("has not ended, want %v", want)
	}
}

func (l *listener) want(messages ...string) {
	l.b.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.got, messages) {
		l.b.t.Errorf("received %q, want %q", l.got, messages)
	}
}

func (b *bench) publish(channel, text string) {
	b.server.publish(channel, text)
	synctest.Wait()
}

// step lets the server execute one command.
func (b *bench) step() {
	b.server.step <- struct{}{}
	synctest.Wait()
}

// wantSent checks the commands so far: "+a" subscribes to a, and "-a" unsubscribes.
func (b *bench) wantSent(want ...string) {
	b.t.Helper()
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	var sent []string
	for _, op := range b.server.sent {
		sent = append(sent, map[bool]string{true: "+", false: "-"}[op.Subscribe]+op.Channel)
	}
	if !slices.Equal(sent, want) {
		b.t.Errorf("sent %q, want %q", sent, want)
	}
}

func TestOneConnection(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		x, y, x2 := b.listen("x"), b.listen("y"), b.listen("x")
		b.publish("x", "1")
		b.publish("y", "2")
		x.want("", "1")
		x2.want("", "1")
		y.want("", "2")
		x.end()
		b.publish("x", "3")
		x.want("", "1")
		x2.want("", "1", "3")
		b.wantSent("+x", "+y")
		x2.end()
		b.wantSent("+x", "+y", "-x")
		y.end()
		if opened, open, _ := b.server.count(); opened != 1 || open != 1 {
			t.Errorf("%d connections were opened and %d are open, want 1", opened, open)
		}
		z := b.listen("x")
		z.want("")
		time.Sleep(time.Minute) // virtual
		z.end()
		if opened, _, _ := b.server.count(); opened != 1 {
			t.Errorf("%d connections were opened, want 1: the first is kept for a few seconds", opened)
		}
	})
}

func TestClosedWhenIdle(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		b.listen("x").end()
		start := time.Now()
		for _, open, _ := b.server.count(); open > 0; _, open, _ = b.server.count() {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(start); took < time.Second || took > 5*time.Second {
			t.Errorf("closed after %v, want a few seconds", took)
		}
		l := b.listen("x")
		l.want("")
		l.end()
	})
}

// A call that comes or goes while a command is in flight waits for its reply.
func TestCommandInFlight(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		b.server.step = make(chan struct{})
		first := b.listen("x")
		first.end() // its SUBSCRIBE has no reply yet
		second := b.listen("x")
		b.wantSent()
		second.want()
		b.step()
		second.want("")
		b.wantSent("+x")
		second.end() // its UNSUBSCRIBE has no reply yet
		third := b.listen("x")
		b.publish("x", "before the confirmation")
		third.want()
		b.step()
		third.want()
		b.step()
		third.want("")
		b.publish("x", "1")
		third.want("", "1")
		b.wantSent("+x", "-x", "+x")
		third.end()
		b.step()
		fourth := b.listen("x")
		fourth.end()
		b.step()
		b.step()
		b.wantSent("+x", "-x", "+x", "-x", "+x", "-x")
	})
}

func TestFailure(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		failure := errors.New("broken")
		x, y := b.listen("x"), b.listen("y")
		b.server.fail(failure)
		synctest.Wait()
		x.wantEnd(failure)
		y.wantEnd(failure)
		again := b.listen("x")
		again.want("")
		again.end()
	})
}

func TestUnresponsive(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		x := b.listen("x")
		time.Sleep(time.Hour) // virtual; the server replies to pings
		synctest.Wait()
		x.want("")
		b.server.set(func() { b.server.mute = true })
		y := b.listen("y")
		start := time.Now()
		err := <-x.ended
		if took := time.Since(start); err == nil || took > 4*time.Second {
			t.Errorf("ended after %v with %v, want a few seconds", took, err)
		}
		synctest.Wait()
		y.wantEnd(err)
	})
}

// An error reply to a ping shows that the server responds. It ends no call.
func TestRefusedPing(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		b.server.refusePing = true
		x := b.listen("x")
		time.Sleep(time.Minute) // virtual
		y := b.listen("y")
		b.publish("x", "1")
		x.want("", "1")
		y.want("")
		x.end()
		y.end()
	})
}

// An error reply ends the calls on its channel only.
func TestRefused(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		refusal := errors.New("NOPERM")
		x := b.listen("x")
		b.server.set(func() { b.server.refuse = refusal })
		y := b.listen("y")
		y.want()
		y.wantEnd(refusal)
		z := b.listen("z")
		z.want()
		z.wantEnd(refusal)
		b.server.set(func() { b.server.refuse = nil })
		y = b.listen("y")
		b.publish("x", "1")
		b.publish("y", "2")
		x.want("", "1")
		y.want("", "2")
		x.end()
		y.end()
	})
}

// A user without permission to unsubscribe keeps a channel until no call is left.
func TestRefusedUnsubscribe(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		b.server.refuseEnd = errors.New("NOPERM")
		x, y := b.listen("x"), b.listen("y")
		x.end()
		x = b.listen("x")
		b.publish("x", "1")
		x.want("", "1")
		x.end()
		b.wantSent("+x", "+y", "-x")
		b.server.set(func() { b.server.step = make(chan struct{}) })
		y.end()
		y = b.listen("y") // while the UNSUBSCRIBE is in flight
		y.want()
		b.step()
		y.want("")
		time.Sleep(time.Minute) // virtual; it is in use
		b.publish("y", "2")
		y.want("", "2")
		y.end()
		b.wantSent("+x", "+y", "-x", "-y")
	})
}

func TestMoved(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		x, y := b.listen("x"), b.listen("y")
		b.server.move("x")
		synctest.Wait()
		if err := <-x.ended; err == nil {
			t.Error("no error after the slot has moved")
		}
		b.publish("y", "1")
		y.want("", "1")
		x = b.listen("x")
		b.publish("x", "2")
		x.want("", "2")
		x.end()
		y.end()
	})
}

// The slot moves while the channel is unsubscribed: the server sends the end twice.
func TestMovedWhileUnsubscribing(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		x := b.listen("x")
		b.server.step = make(chan struct{}) // no command is in flight
		x.end()
		x = b.listen("x")
		b.server.move("x")
		synctest.Wait()
		b.step() // UNSUBSCRIBE
		b.step() // SUBSCRIBE
		x.want("")
		b.publish("x", "1")
		x.want("", "1")
		x.end()
		b.step()
	})
}

func TestOpenFails(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		failure := errors.New("refused")
		b.server.dialing = func(context.Context) error { return failure }
		b.listen("x").wantEnd(failure)
		b.server.dialing = nil
		x := b.listen("x")
		x.want("")
		x.end()
	})
}

// While a server refuses connections, calls open few of them, however many calls there are.
func TestCallsOfARefusingServerOpenFewConnections(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		const calls, between = 10000, time.Millisecond
		failure := errors.New("refused")
		b.server.dialing = func(context.Context) error { return failure }
		for range calls {
			b.listen("x").wantEnd(failure)
			time.Sleep(between) // virtual
		}
		if opened, _, _ := b.server.count(); opened > 30 {
			t.Errorf("%d calls within %v have opened %d connections, want at most 30", calls, calls*between, opened)
		}
		b.server.dialing = nil
		time.Sleep(time.Second) // virtual
		x := b.listen("x")
		x.want("")
		x.end()
	})
}

// A call ends with its context also while the connection is opened. The others end when
// opening takes too long, even if it ignores its context.
func TestOpenHangs(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		hang := make(chan struct{})
		b.server.dialing = func(context.Context) error { <-hang; return nil }
		x, y := b.listen("x"), b.listen("y")
		x.end()
		start := time.Now()
		err := <-y.ended
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
			t.Errorf("ended after %v with %v", took, err)
		}
		close(hang) // the late connection is closed
		synctest.Wait()
	})
}

func TestEndedContext(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		reason := errors.New("reason")
		ctx, cancel := context.WithCancelCause(b.t.Context())
		cancel(reason)
		if err := b.all.Listen(ctx, listen.Server{}, b.server.Open, "x", func(string) {}); !errors.Is(err, reason) {
			t.Errorf("%v, want %v", err, reason)
		}
		synctest.Wait()
		if opened, _, _ := b.server.count(); opened != 0 {
			t.Error("a connection was opened")
		}
	})
}

// A message is delivered to a call that is in its callback.
func TestSlowCallback(t *testing.T) {
	t.Parallel()
	run(t, func(b *bench) {
		ctx, cancel := context.WithCancel(b.t.Context())
		block, got := make(chan struct{}), make(chan string, 10)
		ended := make(chan error, 1)
		go func() {
			ended <- b.all.Listen(ctx, listen.Server{}, b.server.Open, "x", func(m string) { <-block; got <- m })
		}()
		quick := b.listen("x")
		b.publish("x", "1")
		b.publish("x", "2")
		quick.want("", "1", "2")
		close(block)
		for _, want := range []string{"", "1", "2"} {
			if m := <-got; m != want {
				t.Errorf("received %q, want %q", m, want)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		quick.end()
	})
}

// Random calls come and go while connections fail. A confirmed call receives each message
// that is published after its confirmation.
func TestRandom(t *testing.T) {
	t.Parallel()
	const workers, rounds, channels = 16, 300, 5
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	run(t, func(b *bench) {
		var group sync.WaitGroup
		var confirmed, failed atomic.Int64
		for w := range workers {
			group.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(w)))
				for i := range rounds {
					err := b.visit(r, fmt.Sprint(r.IntN(channels)), fmt.Sprintf("%d.%d", w, i))
					switch {
					case err == nil:
						confirmed.Add(1)
					case errors.Is(err, errBroken):
						failed.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { group.Wait(); close(done) }()
		for r := rand.New(rand.NewPCG(seed, workers)); ; {
			select {
			case <-time.After(time.Duration(r.IntN(50)) * time.Millisecond):
				if b.server.fail(errBroken); r.IntN(2) == 0 {
					b.server.move(fmt.Sprint(r.IntN(channels)))
				}
				continue
			case <-done:
			}
			break
		}
		if confirmed.Load() == 0 || failed.Load() == 0 {
			t.Errorf("%d calls received their messages, and %d failed: the test shows nothing", confirmed.Load(), failed.Load())
		}
	})
}

var errBroken = errors.New("broken")

// visit listens on a channel until a message of its own has arrived, or for a random time.
func (b *bench) visit(r *rand.Rand, channel, own string) error {
	patience := time.Duration(r.IntN(3)) * time.Millisecond
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	published, received := false, false
	err := b.all.Listen(ctx, listen.Server{}, b.server.Open, channel, func(message string) {
		switch {
		case message == "" && !published:
			published = true
			if patience == 0 {
				cancel()
				return
			}
			go func() {
				time.Sleep(patience) // virtual
				b.server.publish(channel, own)
			}()
		case message == own:
			received = true
			cancel()
		}
	})
	switch {
	case received || patience == 0 && errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no message within a minute; confirmed: %v", published)
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}

// The memory of many calls, of which each is in a goroutine of its own.
func TestMemory(t *testing.T) {
	const calls = 1000
	var b bench
	b.t = t
	ctx, cancel := context.WithCancel(t.Context())
	before := memory()
	start := time.Now()
	var confirmed, ended sync.WaitGroup
	confirmed.Add(calls)
	for i := range calls {
		ended.Go(func() {
			_ = b.all.Listen(ctx, listen.Server{}, b.server.Open, fmt.Sprint("channel:", i), func(string) { confirmed.Done() })
		})
	}
	confirmed.Wait()
	took := time.Since(start)
	each := (memory() - before) / calls
	t.Logf("FIGURE %d calls of Listen: %v, %d bytes each with the goroutines", calls, took, each)
	if each > 10_000 {
		t.Errorf("%d bytes for each call", each)
	}
	cancel()
	ended.Wait()
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
