package quorum_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
)

type traceKey struct{}

// A tracedNode records each request's trace.
type tracedNode struct {
	driver.Voter
	traces chan string
}

func (n tracedNode) record(ctx context.Context, verb string) {
	trace, _ := ctx.Value(traceKey{}).(string)
	n.traces <- verb + " " + trace
}

func (n tracedNode) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	n.record(ctx, "acquire")
	return n.Voter.Acquire(ctx, r)
}

func (n tracedNode) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	n.record(ctx, "extend")
	return n.Voter.Extend(ctx, requests)
}

func (n tracedNode) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	n.record(ctx, "release")
	return n.Voter.Release(ctx, r)
}

// The values in the caller's context, such as a trace, should reach the nodes. Its end should not:
// a message continues without its caller.
func TestTraceReachesTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traces := make(chan string, 100)
		var nodes []driver.Voter
		for range 3 {
			nodes = append(nodes, tracedNode{memstore.New(), traces})
		}
		s := newQuorum(t, quorum.DurableNodes(), nodes...)
		defer s.Close()
		for _, step := range []struct {
			verb string
			call func(ctx context.Context) error
		}{
			{"acquire", func(ctx context.Context) error {
				_, err := s.Acquire(ctx, driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1})
				return err
			}},
			{"extend", func(ctx context.Context) error {
				return s.Extend(ctx, []driver.ExtendRequest{{Name: "n", Token: "t", TTL: time.Minute}})[0]
			}},
			{"release", func(ctx context.Context) error {
				_, err := s.Release(ctx, driver.ReleaseRequest{Name: "n", Token: "t"})
				return err
			}},
		} {
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "of the caller"))
			if err := step.call(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			synctest.Wait() // until the last node also answered
			for range 3 {
				if have := <-traces; have != step.verb+" of the caller" {
					t.Errorf("%q, want %q", have, step.verb+" of the caller")
				}
			}
			if len(traces) > 0 {
				t.Errorf("further requests: %q", <-traces)
			}
		}
	})
}

// Close should end calls, messages to hanging nodes, and the redelivery. The bubble fails if a
// goroutine is left.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Voter
		var all []*node
		for range 3 {
			n := &node{Voter: memstore.New()}
			all, nodes = append(all, n), append(nodes, n)
		}
		s := newQuorum(t, quorum.DurableNodes(), nodes...)
		locks := dibs.New(s, dibs.TTL(ttl))
		l, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all[2].set(func() { all[2].dead = errors.New("refused") })
		if err := l.Unlock(); err != nil { // node 2 must get it later
			t.Fatal(err)
		}
		for _, n := range all[:2] {
			n.set(func() { n.hangs = true })
		}
		done := make(chan error)
		go func() {
			_, err := s.Acquire(t.Context(), driver.AcquireRequest{
				Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Until: time.Now().Add(time.Hour),
			})
			done <- err
		}()
		time.Sleep(time.Second)
		locks.Close()
		begin := time.Now()
		s.Close()
		if err := <-done; !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		if _, err := s.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("after Close: %v, want ErrUnavailable", err)
		}
		s.Close()
	})
}

// A silentNode answers no acquire. It records why the requests end.
type silentNode struct {
	driver.Voter
	causes chan error
}

func (n silentNode) Acquire(ctx context.Context, _ driver.AcquireRequest) (driver.AcquireReply, error) {
	<-ctx.Done()
	n.causes <- context.Cause(ctx)
	return driver.AcquireReply{}, ctx.Err()
}

// A message whose caller left ends by its time limit, with this limit as its cause.
func TestCauseOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 3)
		var nodes []driver.Voter
		for range 3 {
			nodes = append(nodes, silentNode{memstore.New(), causes})
		}
		s := newQuorum(t, quorum.DurableNodes(), nodes...)
		defer s.Close()
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Millisecond, func() { leave(errors.New("left")) })
		if _, err := s.Acquire(ctx, driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1}); err == nil {
			t.Fatal("a lease without an answer")
		}
		for range nodes {
			if err := <-causes; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the message ended by %v, want its deadline", err)
			}
		}
	})
}
