package history_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A network is a store with delayed requests, replies and events. A request goes on when
// its caller stops waiting. It may have faults.
type network struct {
	*driver.Full
	faults faults
	late   sync.WaitGroup // late requests

	mu     sync.Mutex
	random *rand.Rand
	most   time.Duration   // longest delay for a message
	refuse map[string]bool // tokens whose next acquire is refused
}

// faults configures how many requests in 1000 fail, and how.
type faults struct {
	losses int // a request, its reply or an event is lost
	// The caller gets an error at once, as after a connection reset. The request arrives
	// within latest, when later requests may have been answered.
	resets int
	latest time.Duration
	// Acquires to refuse without effect. After a reset, every second acquire is refused.
	refusals int
}

func delayed(s driver.Store, seed uint64, most time.Duration, f faults) *network {
	return &network{
		Full: driver.Complete(s), random: rand.New(rand.NewPCG(seed, 1000)), most: most, faults: f, refuse: make(map[string]bool),
	}
}

// of1000 reports whether the next event belongs to a given number in a thousand.
func (n *network) of1000(many int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.IntN(1000) < many
}

func (n *network) lost() bool { return n.of1000(n.faults.losses) }

var errReset = errors.New("connection reset")

// reset reports whether the connection breaks during a request, which then arrives late.
func (n *network) reset(call func()) bool {
	if !n.of1000(n.faults.resets) {
		return false
	}
	n.mu.Lock()
	late := time.Duration(n.random.Int64N(int64(n.faults.latest) + 1))
	n.mu.Unlock()
	n.late.Go(func() {
		time.Sleep(late)
		call()
	})
	return true
}

func (n *network) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Duration(n.random.Int64N(int64(n.most)))
}

// refuses reports whether an acquire is refused.
func (n *network) refuses(r driver.AcquireRequest) bool {
	n.mu.Lock()
	after := n.refuse[r.Token]
	delete(n.refuse, r.Token)
	n.mu.Unlock()
	return after || n.of1000(n.faults.refusals)
}

// roundTrip sends a request and returns its reply.
func roundTrip[T any](ctx context.Context, n *network, op string, until time.Time, call func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		return none, &dibs.UnavailableError{Op: op, Cause: context.Cause(ctx)}
	}
	if op != "inspect" && n.reset(func() { _, _ = call(context.WithoutCancel(ctx)) }) {
		return none, &dibs.UnavailableError{Op: op, Cause: errReset}
	}
	came := make(chan result, 1)
	there, back := n.delay(), n.delay()
	arrives, answered := !n.lost(), !n.lost()
	go func() {
		if !arrives {
			return
		}
		time.Sleep(there)
		value, err := call(context.WithoutCancel(ctx))
		time.Sleep(back)
		if answered {
			came <- result{value, err}
		}
	}()
	late := time.NewTimer(max(time.Until(until), 0))
	defer late.Stop()
	select {
	case r := <-came:
		return r.value, r.err
	case <-late.C:
		return none, &dibs.UnavailableError{Op: op, Cause: errors.New("no answer")}
	case <-ctx.Done():
		return none, &dibs.UnavailableError{Op: op, Cause: context.Cause(ctx)}
	}
}

// soon returns the deadline for calls without a deadline.
func soon() time.Time { return time.Now().Add(300 * time.Millisecond) }

func (n *network) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if n.refuses(r) {
		return driver.AcquireReply{}, &dibs.UnavailableError{Op: "acquire", Name: r.Name, Cause: errors.New("too many clients"), Refused: true}
	}
	a, err := roundTrip(ctx, n, "acquire", r.Until, func(ctx context.Context) (driver.AcquireReply, error) { return n.Store.Acquire(ctx, r) })
	if errors.Is(err, errReset) && n.of1000(500*min(n.faults.refusals, 1)) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.refuse[r.Token] = true
	}
	return a, err
}

func (n *network) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return roundTrip(ctx, n, "resize", soon(), func(ctx context.Context) (driver.AcquireReply, error) { return n.Full.Resize(ctx, r) })
}

func (n *network) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	_, err := roundTrip(ctx, n, "cancel", soon(), func(ctx context.Context) (bool, error) { return true, n.Store.Cancel(ctx, r) })
	return err
}

func (n *network) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return roundTrip(ctx, n, "release", r.Until, func(ctx context.Context) (bool, error) { return n.Store.Release(ctx, r) })
}

func (n *network) Revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	return roundTrip(ctx, n, "revoke", soon(), func(ctx context.Context) (bool, error) { return n.Full.Revoke(ctx, r) })
}

func (n *network) ReserveFences(ctx context.Context, r driver.FenceRequest) (driver.FenceReply, error) {
	return roundTrip(ctx, n, "fences", soon(), func(ctx context.Context) (driver.FenceReply, error) {
		return n.Full.ReserveFences(ctx, r)
	})
}

func (n *network) Inspect(ctx context.Context, name string) (dibs.State, error) {
	return roundTrip(ctx, n, "inspect", soon(), func(ctx context.Context) (dibs.State, error) { return n.Full.Inspect(ctx, name) })
}

func (n *network) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	errs, err := roundTrip(ctx, n, "extend", soon(), func(ctx context.Context) ([]error, error) { return n.Store.Extend(ctx, holds), nil })
	if err == nil {
		return errs
	}
	errs = make([]error, len(holds))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// Watch delivers events late, but in order.
func (n *network) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	const plenty = 10_000
	type parcel struct {
		event driver.Event
		due   time.Time
	}
	parcels := make(chan parcel, plenty)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case p := <-parcels:
				time.Sleep(time.Until(p.due))
				on(p.event)
			case <-ctx.Done():
				return
			}
		}
	})
	defer group.Wait()
	return n.Store.Watch(ctx, client, busy, func(e driver.Event) {
		if e.Kind == driver.EventConnected || !n.lost() {
			parcels <- parcel{e, time.Now().Add(n.delay())}
		}
	})
}
