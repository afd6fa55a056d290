package cohort_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A network is a store behind a network that can fail. before is called with each request, which is
// not sent if it returns an error. after is called after the store's reply.
type network struct {
	*memstore.Store

	mu     sync.Mutex
	before func(ctx context.Context, op string) error
	after  func(op string)
	silent bool // events are lost, and no subscription is confirmed
	calls  map[string]int
	fences uint64 // the last fence issued by the store
}

func newNetwork() *network { return &network{Store: memstore.New(), calls: make(map[string]int)} }

func (n *network) set(change func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

func (n *network) count(op string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[op]
}

func (n *network) issued() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fences
}

// hang makes all requests, or only some operations' requests, hang until their context or their
// time ends.
func (n *network) hang(ops ...string) {
	n.set(func(n *network) {
		n.before = func(ctx context.Context, op string) error {
			if len(ops) > 0 && !strings.Contains(strings.Join(ops, " "), op) {
				return nil
			}
			<-ctx.Done()
			return &driver.UnavailableError{Op: op, Cause: ctx.Err()}
		}
	})
}

func (n *network) heal() { n.set(func(n *network) { n.before, n.after = nil, nil }) }

func send[T any](ctx context.Context, n *network, op string, until time.Time, request func() (T, error)) (reply T, err error) {
	if !until.IsZero() {
		within, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		ctx = within
	}
	n.mu.Lock()
	n.calls[op]++
	before, after := n.before, n.after
	n.mu.Unlock()
	if before != nil {
		if err := before(ctx, op); err != nil {
			return reply, err
		}
	}
	reply, err = request()
	if after != nil {
		after(op)
	}
	return reply, err
}

func (n *network) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return send(ctx, n, "acquire", r.Until, func() (driver.AcquireReply, error) {
		reply, err := n.Store.Acquire(ctx, r)
		n.set(func(n *network) { n.fences = max(n.fences, reply.Fence) })
		return reply, err
	})
}

func (n *network) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return send(ctx, n, "release", r.Until, func() (bool, error) { return n.Store.Release(ctx, r) })
}

func (n *network) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	_, err := send(ctx, n, "cancel", r.Until, func() (bool, error) { return true, n.Store.Cancel(ctx, r) })
	return err
}

func (n *network) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs, err := send(ctx, n, "extend", time.Time{}, func() ([]error, error) { return n.Store.Extend(ctx, requests), nil })
	for range requests {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (n *network) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	return send(ctx, n, "wanted", time.Time{}, func() (bool, error) { return n.Store.NotifyWanted(ctx, r) })
}

func (n *network) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	return send(ctx, n, "fences", time.Time{}, func() (driver.FenceReply, error) {
		reply, err := n.Store.ReserveFences(ctx, r)
		n.set(func(n *network) { n.fences = max(n.fences, reply.Last) })
		return reply, err
	})
}

func (n *network) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return n.Store.Watch(ctx, client, busy, func(e driver.Event) {
		n.mu.Lock()
		silent := n.silent
		n.mu.Unlock()
		if !silent {
			on(e)
		}
	})
}

func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// open returns a client. The test closes it at its end.
func open(t *testing.T, s driver.Store, options ...dibs.Option) *dibs.Client {
	c := dibs.New(s, options...)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// group returns a cohort for the name n.
func group(t *testing.T, s driver.Store, batch int, linger time.Duration, options ...dibs.Option) *cohort.Cohort {
	return cohort.New(open(t, s, options...).Mutex("n"), cohort.Passes(batch), cohort.IdleHold(linger))
}

// A lease is from a Mutex or a Cohort.
type lease interface {
	Fence() uint64
	Err() error
	Unlock() error
}

func lock(t *testing.T, c *cohort.Cohort, options ...dibs.Option) *cohort.Lease {
	t.Helper()
	l, err := c.Lock(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lockMutex(t *testing.T, c *dibs.Client) *dibs.Lease {
	t.Helper()
	l, err := c.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil {
		t.Fatalf("error %v, want none", err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("error %v, want %v", err, w)
		}
	}
}

func wantLost(t *testing.T, err error, why dibs.Reason) {
	t.Helper()
	var lost *dibs.LostError
	if !errors.As(err, &lost) || lost.Reason != why || lost.Name != "n" {
		t.Fatalf("error %v, want lost: %s", err, why)
	}
}

// wantTook fails if less or more time passed since begin.
func wantTook(t *testing.T, begin time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(begin); took < least || took > most {
		t.Errorf("took %v, want %v to %v", took, least, most)
	}
}

func wantFree(t *testing.T, s driver.Store) {
	t.Helper()
	synctest.Wait()
	state, err := driver.Complete(s).Inspect(context.Background(), "n")
	if err != nil || len(state.Holders) > 0 || state.Waiting > 0 {
		t.Fatalf("left behind: %+v, %v", state, err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitUntilFree waits until the name is free, and returns how long it waited.
func waitUntilFree(t *testing.T, s driver.Store) time.Duration {
	t.Helper()
	begin := time.Now()
	for {
		state, err := driver.Complete(s).Inspect(t.Context(), "n")
		if err != nil || time.Since(begin) > time.Hour {
			t.Fatalf("never free: %+v, %v", state, err)
		}
		if len(state.Holders) == 0 && state.Waiting == 0 {
			return time.Since(begin)
		}
		time.Sleep(time.Millisecond)
	}
}

// A workplace is a critical section that records its workers, and checks that they are never inside
// together.
type workplace struct {
	t      *testing.T
	inside atomic.Int32

	mu     sync.Mutex
	names  []string
	fences []uint64
}

func (w *workplace) enter(who string, l lease, work time.Duration) {
	if w.inside.Add(1) != 1 {
		w.t.Error("two holders at once")
	}
	w.mu.Lock()
	w.names, w.fences = append(w.names, who), append(w.fences, l.Fence())
	w.mu.Unlock()
	time.Sleep(work)
	w.inside.Add(-1)
}

// order returns the workers' names in order. It checks that fences grow.
func (w *workplace) order() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.fences); i++ {
		if w.fences[i] <= w.fences[i-1] {
			w.t.Errorf("entry %d: fence %d after %d", i, w.fences[i], w.fences[i-1])
		}
	}
	return strings.Join(w.names, " ")
}

func (w *workplace) entries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.names)
}

// queueUp starts a worker that works once in w, and waits until it is queued.
func (w *workplace) queueUp(who string, lock func() (lease, error), work time.Duration) {
	w.t.Helper()
	go func() {
		l, err := lock()
		if err != nil {
			w.t.Errorf("%s: %v", who, err)
			return
		}
		w.enter(who, l, work)
		if err := l.Unlock(); err != nil {
			w.t.Errorf("%s: unlock: %v", who, err)
		}
	}()
	synctest.Wait()
}

func (w *workplace) local(c *cohort.Cohort, options ...dibs.Option) func() (lease, error) {
	return func() (lease, error) { return c.Lock(w.t.Context(), options...) }
}

func (w *workplace) remote(c *dibs.Client) func() (lease, error) {
	return func() (lease, error) { return c.Mutex("n").Lock(w.t.Context()) }
}
