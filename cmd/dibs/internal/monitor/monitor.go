// Package monitor reports a store's outages: once when it becomes unreachable, and once when it
// answers again. It is for commands that run for hours or wait in cron, whose output nobody
// watches.
package monitor

import (
	"context"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A Monitor reports a store's outages. It reports a failure only after [Delay]: a connection that
// is reset and reopened is not worth a line. All methods are safe for concurrent use.
type Monitor struct {
	options Options
	store   *store
	health  *health
	lines   *lines
}

// Delay is the time after which a failure is reported.
const Delay = 500 * time.Millisecond

// notified is the time in which notifications usually return after the store.
const notified = 2 * time.Second

// Options are New's parameters besides the store.
type Options struct {
	Location string        // the store's location, without credentials
	Timeout  time.Duration // for the Monitor's own inspections
	Verbose  bool          // a holder reports missing notifications as well, which it does not need
	Show     func(Report)  // prints a report; called from a single goroutine
}

// New returns a monitor for a store. It must be closed.
func New(s driver.Store, options Options) *Monitor {
	pending := newLines()
	h := &health{state: state{verbose: options.Verbose}}
	h.show = func(r Report) {
		r.Location = options.Location
		pending.put(func() { options.Show(r) })
	}
	return &Monitor{options: options, store: &store{driver.Complete(s), h}, health: h, lines: pending}
}

// Store returns the store for a Client: the store passed to New, under observation.
func (m *Monitor) Store() driver.Store { return m.store }

// Hooks returns the hooks for a Client on the store.
func (m *Monitor) Hooks() dibs.Hooks { return dibs.Hooks{Degraded: m.onDegraded} }

// SetWaiting records the names for which the caller waits, and whether it tries again after a
// failed first request. If not, such a failure is not reported: the caller exits with it.
func (m *Monitor) SetWaiting(names []string, retries bool) {
	m.health.change(func(s *state, _ time.Time) *Report {
		s.names, s.lease, s.retries = names, nil, retries
		return nil
	})
}

// Answered reports whether the store answered any request.
func (m *Monitor) Answered() bool { return m.health.everAnswered() }

// SetHolding records that the names were granted.
func (m *Monitor) SetHolding(lease *dibs.Lease) {
	m.health.change(func(s *state, _ time.Time) *Report {
		s.lease = lease
		return nil
	})
}

// Close stops all reports and waits until pending lines are written. The caller should print the
// final result after that.
func (m *Monitor) Close() { m.lines.close() }

// Write calls write behind the pending reports. It drops the call if too many are pending.
func (m *Monitor) Write(write func()) { m.lines.put(write) }

// onDegraded is the hook for notifications that stop or return. If they stay away, a probe shows
// whether the whole store is unreachable.
func (m *Monitor) onDegraded(_ context.Context, d dibs.Degraded) {
	m.health.change(func(s *state, now time.Time) *Report {
		s.degraded, s.degradedSince = d.Err, now
		if d.Err == nil {
			return s.report(now)
		}
		time.AfterFunc(Delay, m.probe)
		return nil
	})
}

func (m *Monitor) probe() {
	s := m.health.snapshot()
	if s.degraded == nil || s.answers.failing() || len(s.names) == 0 || m.lines.isClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.options.Timeout)
	defer cancel()
	_, _ = m.store.Inspect(ctx, s.names[0]) // which calls record
	m.health.recheck()
}

// CurrentOutage returns the time since the store became unreachable, or zero.
func (m *Monitor) CurrentOutage() time.Duration {
	s := m.health.snapshot()
	return s.answers.currentOutage(time.Now())
}

// TotalOutage returns the total time for which the store was unreachable.
func (m *Monitor) TotalOutage() time.Duration {
	s := m.health.snapshot()
	return s.answers.totalOutage(time.Now())
}

// NotRenewed returns the ErrLost for a lease whose renewals failed, with the cause in its text.
func (m *Monitor) NotRenewed(lease *dibs.Lease) error {
	s := m.health.snapshot()
	return s.notRenewed(lease, time.Now())
}
