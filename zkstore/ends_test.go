package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// briefly returns a context for a request whose answer does not come.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// deletes matches the deletions of entries of a name.
func deletes(name string) func(op int32, request []byte) bool {
	return func(op int32, request []byte) bool {
		return op == opDelete && strings.Contains(string(request), name)
	}
}

// moves matches the transactions about entries of a name.
func moves(name string) func(op int32, request []byte) bool {
	return func(op int32, request []byte) bool {
		return op == opMulti && strings.Contains(string(request), name)
	}
}

// A reservation lasts although the reply to the release was lost, and the lease would have ended.
func TestReservationAfterALostReply(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.name = "lost-reply"
	const ttl = 2 * time.Second
	wantHeld(t, f.store, request(f.name, "t", ttl))
	f.wire.strike(replyLost, moves(f.name), 0)
	f.until(f.release("t", time.Hour))
	time.Sleep(2 * ttl)
	if s := f.state(); len(s.Holders) != 1 || !s.Holders[0].Reserved {
		t.Errorf("%+v, want it reserved", s)
	}
}

// A waiter whose Cancel got no answer ends, also if its token is then released.
func TestReleaseOfACanceledWaiter(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.name = "canceled"
	waiter := request(f.name, "t", shortTTL)
	wantHeld(t, f.direct, request(f.name, "holder", 20*time.Second))
	wantBusy(t, f.store, waiter)
	wantHeld(t, f.store, request("other", "other", shortTTL)) // its session lasts
	struck := f.wire.strike(requestLate, deletes(f.name), 0)
	wantUnavailable(t, f.store.Cancel(briefly(t), waiter))
	<-struck
	f.wire.reset()
	f.until(f.release("t", 0))
	eventually(t, patience, func() error {
		if s := f.state(); s.Waiting != 0 {
			return fmt.Errorf("%+v, want no waiter", s)
		}
		return nil
	})
}

// A lease ends although the reply to its move was lost and nobody repeats it: its new session lasts.
func TestLeaseEndsAfterALostMove(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.name = "moved"
	const ttl = 2 * time.Second
	other := request("other", "other", 20*time.Second)
	wantHeld(t, f.store, other)
	wantHeld(t, f.store, request(f.name, "t", ttl))
	struck := f.wire.strike(replyLost, moves(f.name), 0)
	wantUnavailable(t, f.extend("t", 20*time.Second)(briefly(t)))
	<-struck
	eventually(t, 3*ttl+patience, func() error {
		if s := f.state(); s.Holding != 0 {
			return fmt.Errorf("%+v, want no holder", s)
		}
		return nil
	})
}

// A release of another process's lease does not report a lease that exists as lost.
func TestReleaseWhileTheControlEnds(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.name = "control"
	r := request(f.name, "t", 35*time.Second)
	wantHeld(t, f.direct, r)
	struck := f.wire.strike(requestLate, deletes(f.name), 0)
	released := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		did, err := f.store.Release(ctx, driver.ReleaseRequest{Name: f.name, Token: "t"})
		if err == nil && !did {
			err = errors.New("not held")
		}
		released <- err
	}()
	<-struck
	f.wire.isolate()
	f.wire.reset()
	time.Sleep(16 * time.Second) // longer than a session of 10 s
	f.wire.heal()
	if err := <-released; err != nil && !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
}

// Canceled and abandoned requests leave no entry, whenever they end.
func TestCancelDuringAnAcquire(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	f.wire.reset()
	for i := range 20 {
		f.name = fmt.Sprint("during-", i)
		r := request(f.name, "t", shortTTL)
		f.wire.isolate()
		f.wire.reset()
		ended := make(chan error, 2)
		go func() { _, err := f.store.Acquire(soon(t), r); ended <- err }()
		go func() { ended <- f.store.Cancel(soon(t), r) }()
		time.Sleep(50 * time.Millisecond)
		f.wire.heal()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, driver.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		f.until(f.cancel(r))
		f.wantState(0, 0)
	}
}

// A login that the servers refuse is the error of each call.
func TestRefusedLoginIsNamed(t *testing.T) {
	t.Parallel()
	s := open(t, endpoints(sharedServer(t)), zkstore.Prefix(newPrefix()), zkstore.Auth("nonsense", []byte("x")))
	for range 3 {
		_, err := s.Acquire(soon(t), request("n", "t", shortTTL))
		if err == nil || !strings.Contains(err.Error(), "nonsense") {
			t.Errorf("%v, want it to name the scheme", err)
		}
	}
}

// A store without a server says so once, in one line.
func TestErrorWithoutServer(t *testing.T) {
	t.Parallel()
	s := open(t, []string{"127.0.0.1:1"})
	var calls sync.WaitGroup
	for i := range 3 {
		calls.Go(func() {
			_, err := s.Acquire(briefly(t), request(fmt.Sprint("n", i), "t", shortTTL))
			if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "no ZooKeeper server answers") {
				t.Errorf("%v, want the reason in one line", err)
			}
		})
	}
	calls.Wait()
}

// wantUnavailable checks that the outcome of a request is unknown.
func wantUnavailable(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
}
