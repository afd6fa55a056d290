// Package monitor reports the outages of a store: once when it becomes unreachable, and
// once when it answers again. It is meant for commands that run for hours or wait in cron,
// whose output nobody watches.
package monitor

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A Monitor is a store that reports its outages. It reports a failure after [Delay] only:
// a connection that is reset and reopened is not worth a line. All methods are safe for
// concurrent use.
type Monitor struct {
	driver.Store
	options Options
	lines   *lines

	mu    sync.Mutex
	state state
}

// Delay is the time after which a failure is reported.
const Delay = 500 * time.Millisecond

// Options are what New needs besides the store.
type Options struct {
	Location string        // of the store, without credentials
	Timeout  time.Duration // of an inspection that the Monitor makes itself
	Verbose  bool          // a holder reports missing notifications as well, which it does not need
	Show     func(Report)  // prints a report; called by one goroutine
}

// New returns a monitor of a store. It must be closed.
func New(s driver.Store, options Options) *Monitor {
	return &Monitor{Store: s, options: options, lines: newLines(), state: state{verbose: options.Verbose}}
}

// Hooks returns the hooks for a Client on the store.
func (m *Monitor) Hooks() dibs.Hooks { return dibs.Hooks{Degraded: m.onDegraded} }

// SetWaiting records the names that the caller waits for. The caller gives up if its
// first request fails, so such a failure is not reported.
func (m *Monitor) SetWaiting(names []string) {
	m.change(func(s *state, _ time.Time) *Report {
		s.names, s.lease, s.retries = names, nil, false
		return nil
	})
}

// SetCampaigning records the names that the caller waits for. The caller retries even if
// its first request fails.
func (m *Monitor) SetCampaigning(names []string) {
	m.change(func(s *state, _ time.Time) *Report {
		s.names, s.lease, s.retries = names, nil, true
		return nil
	})
}

// SetHolding records that the names were granted.
func (m *Monitor) SetHolding(lease *dibs.Lease) {
	m.change(func(s *state, _ time.Time) *Report {
		s.lease = lease
		return nil
	})
}

// Close stops all reports and waits until the pending lines are written. The caller prints
// the final result after that.
func (m *Monitor) Close() { m.lines.close() }

// Write calls write behind the pending reports. It drops the call if too many are pending.
func (m *Monitor) Write(write func()) { m.lines.put(write) }

// change changes the state and queues the report that do returns, unless that is nil.
// Reports are in the order of the changes.
func (m *Monitor) change(do func(s *state, now time.Time) *Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := do(&m.state, time.Now()); r != nil {
		r.Location = m.options.Location
		m.lines.put(func() { m.options.Show(*r) })
	}
}

// Acquire implements driver.Store. It retries until the store has answered once, as long
// as no connection can be opened. Such a failure has sent no request: so Acquire returns
// it as refused, and the client does not cancel, which would take as long again.
func (m *Monitor) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	const pause = 50 * time.Millisecond
	for {
		sent := time.Now()
		answer, err := m.Store.Acquire(ctx, c)
		m.record(ctx, sent, err)
		if err == nil || !Unsent(err) || m.everAnswered() {
			return answer, err
		}
		// Stop early: a dial that ends at the deadline is not recognized as unsent.
		if time.Until(c.Until) < 2*time.Since(sent)+pause || !sleep(ctx, pause) {
			return answer, &driver.UnavailableError{Op: "acquire", Name: c.Name, Cause: causeOf(err), Refused: true}
		}
	}
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Extend implements driver.Store.
func (m *Monitor) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	sent := time.Now()
	m.setRenewalSent(sent)
	errs := m.Store.Extend(ctx, holds)
	m.setRenewalSent(time.Time{})
	for _, err := range errs {
		if errors.Is(err, dibs.ErrUnavailable) {
			m.record(ctx, sent, err)
			return errs
		}
	}
	m.record(ctx, sent, nil)
	return errs
}

// Release implements driver.Store.
func (m *Monitor) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	sent := time.Now()
	done, err := m.Store.Release(ctx, r)
	m.record(ctx, sent, err)
	return done, err
}

// Inspect implements driver.Store.
func (m *Monitor) Inspect(ctx context.Context, name string) (driver.State, error) {
	sent := time.Now()
	state, err := m.Store.Inspect(ctx, name)
	m.record(ctx, sent, err)
	return state, err
}

// Unsent reports whether an operation failed only because no connection could be opened.
// It returns false for joined errors: one of them may belong to a request that was sent.
func Unsent(err error) bool {
	for err = causeOf(err); err != nil; err = errors.Unwrap(err) {
		if op, ok := err.(*net.OpError); ok { //nolint:errorlint // the loop unwraps; joined errors must not match
			return op.Op == "dial"
		}
	}
	return false
}

// causeOf returns the cause of an UnavailableError, without the operation and the name.
func causeOf(err error) error {
	var u *driver.UnavailableError
	if errors.As(err, &u) && u.Cause != nil {
		return u.Cause
	}
	return err
}

func (m *Monitor) everAnswered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.answers.any()
}

func (m *Monitor) setRenewalSent(at time.Time) {
	m.change(func(s *state, _ time.Time) *Report {
		s.renewalSent = at
		return nil
	})
}

// record evaluates the result of an operation. It ignores failures of operations that
// their caller has cancelled, and of those that were sent before the last answer: they do
// not describe the current state of the store.
func (m *Monitor) record(ctx context.Context, sent time.Time, err error) {
	m.change(func(s *state, now time.Time) *Report {
		if !errors.Is(err, dibs.ErrUnavailable) {
			if s.answers.succeeded(now) {
				time.AfterFunc(Delay, m.recheck) // by then notifications may be back, too
			}
			return s.report(now)
		}
		if errors.Is(ctx.Err(), context.Canceled) || sent.Before(s.answers.last) {
			return nil
		}
		if s.answers.failed(sent, err) {
			time.AfterFunc(sent.Add(Delay).Sub(now), m.recheck)
		}
		return nil
	})
}

func (m *Monitor) recheck() { m.change((*state).report) }

// onDegraded is the hook for the end and the return of notifications. If they stay away,
// a probe shows whether the store is unreachable altogether.
func (m *Monitor) onDegraded(d dibs.Degraded) {
	m.change(func(s *state, now time.Time) *Report {
		s.degraded, s.degradedSince = d.Err, now
		if d.Err == nil {
			return s.report(now)
		}
		time.AfterFunc(Delay, m.probe)
		return nil
	})
}

func (m *Monitor) probe() {
	m.mu.Lock()
	names, needed := m.state.names, m.state.degraded != nil && !m.state.answers.failing()
	m.mu.Unlock()
	if !needed || len(names) == 0 || m.lines.isClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.options.Timeout)
	defer cancel()
	_, _ = m.Inspect(ctx, names[0]) // which calls record
	m.recheck()
}

// CurrentOutage returns the time since the store became unreachable, or zero.
func (m *Monitor) CurrentOutage() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.answers.currentOutage(time.Now())
}

// TotalOutage returns the total time for which the store was unreachable.
func (m *Monitor) TotalOutage() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.answers.totalOutage(time.Now())
}

// NotRenewed returns the ErrLost of a lease whose renewals have failed, with the cause in
// its text.
func (m *Monitor) NotRenewed(lease *dibs.Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.notRenewed(lease, time.Now())
}
