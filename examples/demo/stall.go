package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Scene 4. The store becomes unreachable for a holder: its renewals fail. Its context
// ends before the next holder acquires the lock, and its late write is rejected.

// An event is a line in the timeline. At is the time on the machine's clock in ns.
type event struct {
	At     int64
	Holder string
	Kind   string
	Text   string
}

type stallResult struct {
	notified, entered time.Duration // since the first acquisition
	rejected          bool          // the late write was rejected
}

// lead returns the time from A's notification to B's acquisition.
func (s stallResult) lead() time.Duration { return s.entered - s.notified }

func sceneStall(ctx context.Context, c *teamSet, size demoSize, out *printer, seen *outcome) error {
	out.scene(4, "A holder that stalls", "A and B write to one register, leases of %s", span(size.TTL).text)
	roles := []string{"hold", "follow"}
	reports := make([]report, len(roles))
	err := concurrently(ctx, len(roles), func(ctx context.Context, i int) (err error) {
		reports[i], err = c.teams[i].do(ctx, job{Task: roles[i], For: size.TTL})
		return err
	})
	if err != nil {
		return err
	}
	events := slices.Concat(reports[0].Events, reports[1].Events)
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	seen.stall = printTimeline(events, out)
	out.value("from A's notification to B's acquisition", span(seen.stall.lead()).markBad(seen.stall.lead() <= 0))
	return nil
}

// printTimeline prints the timeline and returns its result.
func printTimeline(events []event, out *printer) stallResult {
	var s stallResult
	for _, e := range events {
		at := time.Duration(e.At - events[0].At)
		switch e.Kind {
		case "notified":
			s.notified = at
		case "next":
			s.entered = at
		case "rejected":
			s.rejected = true
		}
		out.event(at, e.Holder, e.Text, e.Kind)
	}
	return s
}

// A timeline records a holder's events.
type timeline struct {
	holder string

	mu     sync.Mutex
	events []event
}

func (d *timeline) record(kind, format string, args ...any) {
	at := time.Now().UnixNano()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, event{At: at, Holder: d.holder, Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// hold is A's task.
func hold(ctx context.Context, l *local, j job) (report, error) {
	d := &timeline{holder: "A"}
	err := d.hold(ctx, l, j.For)
	return report{Events: d.events}, err
}

func (d *timeline) hold(ctx context.Context, l *local, ttl time.Duration) (err error) {
	var failed atomic.Int64
	link := &faultyStore{Full: driver.Complete(l.data.locks())}
	locks := newClient(link, dibs.TTL(ttl), dibs.Observe(dibs.Hooks{
		RenewFailed: func(context.Context, dibs.RenewFailed) { failed.Add(1) },
	}))
	defer func() {
		link.reconnect()
		err = errors.Join(err, locks.Close())
	}()
	lease, err := locks.Mutex("register").Lock(ctx)
	if err != nil {
		return err
	}
	d.record("acquired", "acquires the lock with fence %d", lease.Fence())
	if err := d.write(ctx, l, lease.Fence(), "writes"); err != nil {
		return err
	}
	if err := l.waitForState(ctx, func(s dibs.State) bool { return s.Waiting > 0 }); err != nil {
		return err
	}
	link.disconnect()
	d.record("cut", "loses its connection to the store")
	if err := waitForLoss(ctx, lease); err != nil {
		return err
	}
	d.record("notified", "is notified of the loss, after %d failed renewals", failed.Load())
	return d.writeLate(ctx, l, lease)
}

// waitForLoss waits until the lease's context ends.
func waitForLoss(ctx context.Context, lease *dibs.Lease) error {
	select {
	case <-ctx.Done():
	case <-lease.Context().Done():
		if !errors.Is(context.Cause(lease.Context()), dibs.ErrLost) {
			return context.Cause(lease.Context())
		}
	}
	return ctx.Err()
}

// writeLate acts like a holder that ignores the loss: it writes, with its old fence, after the next
// holder's write.
func (d *timeline) writeLate(ctx context.Context, l *local, lease *dibs.Lease) error {
	err := poll(ctx, func() (bool, error) {
		fence, err := l.data.register().largest(ctx)
		return fence > lease.Fence(), err
	})
	if err != nil {
		return err
	}
	if err := d.write(ctx, l, lease.Fence(), "writes late, with its old fence"); err != nil {
		return err
	}
	if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
		return fmt.Errorf("unlock of a lost lease: want ErrLost, have %w", err)
	}
	return nil
}

// follow is B's task.
func follow(ctx context.Context, l *local, j job) (report, error) {
	d := &timeline{holder: "B"}
	err := d.follow(ctx, l, j.For)
	return report{Events: d.events}, err
}

func (d *timeline) follow(ctx context.Context, l *local, ttl time.Duration) error {
	if err := l.waitForState(ctx, func(s dibs.State) bool { return len(s.Holders) > 0 }); err != nil {
		return err
	}
	queued := dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { d.record("queues", "queues") }})
	return l.locks.Mutex("register", dibs.TTL(ttl), queued).Do(ctx, func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		d.record("next", "acquires the lock with fence %d", fence)
		return d.write(ctx, l, fence, "writes")
	})
}

func (d *timeline) write(ctx context.Context, l *local, fence uint64, how string) error {
	accepted, err := l.data.register().write(ctx, fence)
	switch {
	case err != nil:
		return err
	case accepted:
		d.record("accepted", "%s: accepted", how)
	default:
		d.record("rejected", "%s: rejected", how)
	}
	return nil
}

// waitForState waits until is returns true for the state of the register's lock.
func (l *local) waitForState(ctx context.Context, is func(dibs.State) bool) error {
	return poll(ctx, func() (bool, error) {
		s, err := l.locks.Inspect(ctx, "register")
		return is(s), err
	})
}

func poll(ctx context.Context, done func() (bool, error)) error {
	const every = 5 * time.Millisecond
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A faultyStore is a store that can be disconnected: renewals and releases then remain unanswered.
type faultyStore struct {
	*driver.Full
	disconnected atomic.Bool
}

func (l *faultyStore) disconnect() { l.disconnected.Store(true) }
func (l *faultyStore) reconnect()  { l.disconnected.Store(false) }

// waitForTimeout waits until ctx ends and returns an unresponsive store's error.
func waitForTimeout(ctx context.Context, op string) error {
	<-ctx.Done()
	return &driver.UnavailableError{Op: op, Cause: context.Cause(ctx)}
}

// Extend implements driver.Store.
func (l *faultyStore) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	if !l.disconnected.Load() {
		return l.Store.Extend(ctx, holds)
	}
	err := waitForTimeout(ctx, "extend")
	return slices.Repeat([]error{err}, len(holds))
}

// Release implements driver.Store.
func (l *faultyStore) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if !l.disconnected.Load() {
		return l.Store.Release(ctx, r)
	}
	ctx, cancel := context.WithDeadline(ctx, r.Until)
	defer cancel()
	return false, waitForTimeout(ctx, "release")
}
