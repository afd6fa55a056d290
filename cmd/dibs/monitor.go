package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A storeMonitor is a store that reports its outages: one line when it becomes
// unreachable, and one when it answers again. It is meant for commands that run for hours
// or wait in cron, whose output nobody watches.
//
// It reports a failure after reportDelay only: a connection that is reset and reopened is
// not worth a line.
type storeMonitor struct {
	driver.Store
	app      *app
	location string

	mu         sync.Mutex
	names      []string    // requested or held; empty: nothing was requested yet
	lease      *dibs.Lease // nil: waiting for the names
	lastAnswer time.Time   // time of the last answer, or zero
	retries    bool        // the caller retries after a first failure, so report that one, too
	lines      chan func() // output functions, in order; closed by end
	ended      bool
	written    chan struct{} // closed when all lines are written

	failingSince  time.Time     // start of the current run of failures, or zero
	lastError     error         // of the last failed operation
	renewalSent   time.Time     // when the renewal in flight was sent, or zero
	degraded      error         // why notifications are missing, or nil
	degradedSince time.Time     // when notifications stopped
	reported      fault         // the last report
	reportedSince time.Time     // start of the reported fault
	recoveredAt   time.Time     // when an operation last succeeded after a failed one
	pastOutages   time.Duration // total length of past outages
}

// reportDelay is the time after which a failure is reported.
const reportDelay = 500 * time.Millisecond

// A fault is a problem of a store.
type fault int

const (
	noFault fault = iota
	noNotifications
	unreachable
)

// newMonitor returns a monitor of s. A goroutine of its own writes the lines: a renewal
// must not wait for the reader of stderr.
func (a *app) newMonitor(s *opened) *storeMonitor {
	const most = 16 // unread lines; more are dropped
	w := &storeMonitor{Store: s.Store, app: a, location: s.location, lines: make(chan func(), most), written: make(chan struct{})}
	go func() {
		defer close(w.written)
		for write := range w.lines {
			write()
		}
	}()
	return w
}

// hooks returns the hooks for a Client on the store.
func (w *storeMonitor) hooks() dibs.Hooks { return dibs.Hooks{Degraded: w.onDegraded} }

// setWaiting records the names that the caller waits for. retries means that the caller
// retries even if its first request fails.
func (w *storeMonitor) setWaiting(names []string, retries bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names, w.lease, w.retries = names, nil, retries
}

// setHolding records that the names were granted.
func (w *storeMonitor) setHolding(lease *dibs.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease = lease
}

// end stops all reports and waits until the pending lines are written. The caller prints
// the final result after that.
func (w *storeMonitor) end() {
	w.mu.Lock()
	if !w.ended {
		w.ended = true
		close(w.lines)
	}
	w.mu.Unlock()
	<-w.written
}

// write queues a line. It drops the line if the queue is full. The caller holds w.mu.
func (w *storeMonitor) write(line func()) {
	if w.ended {
		return
	}
	select {
	case w.lines <- line:
	default:
	}
}

// logVerbose queues a line behind the pending reports.
func (w *storeMonitor) logVerbose(line func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(line)
}

// Acquire implements driver.Store. It retries until the store has answered once, as long
// as no connection can be opened. Such a failure has sent no request: so Acquire returns
// it as refused, and the client does not cancel, which would take as long again.
func (w *storeMonitor) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	const pause = 50 * time.Millisecond
	for {
		sent := time.Now()
		answer, err := w.Store.Acquire(ctx, c)
		w.record(ctx, sent, err)
		if err == nil || !unsent(err) || w.everAnswered() {
			return answer, err
		}
		// Stop early: a dial that ends at the deadline is not recognized as unsent.
		if time.Until(c.Until) < 2*time.Since(sent)+pause || !sleep(ctx, pause) {
			return answer, &dibs.UnavailableError{Op: "acquire", Name: c.Name, Cause: causeOf(err), Refused: true}
		}
	}
}

// Extend implements driver.Store.
func (w *storeMonitor) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	sent := time.Now()
	w.setRenewalSent(sent)
	errs := w.Store.Extend(ctx, holds)
	w.setRenewalSent(time.Time{})
	for _, err := range errs {
		if errors.Is(err, dibs.ErrUnavailable) {
			w.record(ctx, sent, err)
			return errs
		}
	}
	w.record(ctx, sent, nil)
	return errs
}

// Release implements driver.Store.
func (w *storeMonitor) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	sent := time.Now()
	done, err := w.Store.Release(ctx, r)
	w.record(ctx, sent, err)
	return done, err
}

// Inspect implements driver.Store.
func (w *storeMonitor) Inspect(ctx context.Context, name string) (dibs.State, error) {
	sent := time.Now()
	state, err := w.Store.Inspect(ctx, name)
	w.record(ctx, sent, err)
	return state, err
}

// unsent reports whether an operation failed only because no connection could be opened.
// It returns false for joined errors: one of them may belong to a request that was sent.
func unsent(err error) bool {
	for err = causeOf(err); err != nil; err = errors.Unwrap(err) {
		if op, ok := err.(*net.OpError); ok { //nolint:errorlint // the loop unwraps; joined errors must not match
			return op.Op == "dial"
		}
	}
	return false
}

// causeOf returns the cause of an UnavailableError, without the operation and the name.
func causeOf(err error) error {
	var u *dibs.UnavailableError
	if errors.As(err, &u) && u.Cause != nil {
		return u.Cause
	}
	return err
}

func (w *storeMonitor) everAnswered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.lastAnswer.IsZero()
}

func (w *storeMonitor) setRenewalSent(renewal time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewalSent = renewal
}

// record evaluates the result of an operation. It ignores failures of operations that
// their caller has cancelled, and of those that were sent before the last answer: they do
// not describe the current state of the store.
func (w *storeMonitor) record(ctx context.Context, sent time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !errors.Is(err, dibs.ErrUnavailable):
		w.lastAnswer = time.Now()
		if !w.failingSince.IsZero() {
			w.recoveredAt = w.lastAnswer
			w.pastOutages += w.recoveredAt.Sub(w.failingSince)
			time.AfterFunc(reportDelay, w.recheck) // by then notifications may be back, too
		}
		w.failingSince, w.lastError = time.Time{}, nil
		w.report()
		return
	case errors.Is(ctx.Err(), context.Canceled), sent.Before(w.lastAnswer):
		return
	}
	w.lastError = err
	if w.failingSince.IsZero() {
		w.failingSince = sent
		time.AfterFunc(time.Until(sent.Add(reportDelay)), w.recheck)
	}
}

func (w *storeMonitor) recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report()
}

// onDegraded is the hook for the end and the return of notifications. If they stay away,
// a probe shows whether the store is unreachable altogether.
func (w *storeMonitor) onDegraded(d dibs.Degraded) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.degraded, w.degradedSince = d.Err, time.Now()
	if d.Err == nil {
		w.report()
		return
	}
	time.AfterFunc(reportDelay, w.probe)
}

func (w *storeMonitor) probe() {
	w.mu.Lock()
	names, needed := w.names, w.degraded != nil && w.failingSince.IsZero() && !w.ended
	w.mu.Unlock()
	if !needed || len(names) == 0 {
		return
	}
	ctx, cancel := w.app.withTimeout(context.Background())
	defer cancel()
	_, _ = w.Inspect(ctx, names[0]) // which calls record
	w.recheck()
}

// report queues a line if a fault has begun or ended. The caller holds w.mu.
func (w *storeMonitor) report() {
	now := w.currentFault()
	switch {
	case w.ended || now == w.reported || len(w.names) == 0:
		return
	case now == unreachable && w.lastAnswer.IsZero() && !w.retries:
		return // the caller exits with an error
	case now == noNotifications && time.Since(w.recoveredAt) < reportDelay:
		return // notifications usually return shortly after the store
	case now == noFault:
		w.write(w.recoveryReport())
	default:
		w.write(w.faultReport(now))
	}
	if w.reported == noFault {
		w.reportedSince = w.faultBegan()
	}
	w.reported = now
}

func (w *storeMonitor) currentFault() fault {
	// A holder needs no notifications.
	concerned := w.lease == nil || w.reported == noNotifications || w.app.verbose || w.app.json
	switch {
	case !w.failingSince.IsZero() && time.Since(w.failingSince) >= reportDelay:
		return unreachable
	case !w.failingSince.IsZero():
		return w.reported // not decided before reportDelay
	case w.degraded != nil && concerned && time.Since(w.degradedSince) >= reportDelay:
		return noNotifications
	}
	return noFault
}

// faultBegan returns the start of the current fault.
func (w *storeMonitor) faultBegan() time.Time {
	if !w.failingSince.IsZero() {
		return w.failingSince
	}
	return time.Now()
}

// activity says whether dibs waits for the names or holds them.
func (w *storeMonitor) activity() string {
	if w.lease == nil {
		return "waiting for " + quoted(w.names)
	}
	return "holding " + quoted(w.names)
}

// currentOutage returns the time since the store became unreachable, or zero.
func (w *storeMonitor) currentOutage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failingSince.IsZero() {
		return 0
	}
	return time.Since(w.failingSince)
}

// totalOutage returns the total time for which the store was unreachable.
func (w *storeMonitor) totalOutage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failingSince.IsZero() {
		return w.pastOutages
	}
	return w.pastOutages + time.Since(w.failingSince)
}

// notRenewedError returns the error for a lease whose renewals have failed, with the
// cause.
func (w *storeMonitor) notRenewedError(lease *dibs.Lease) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.names
	if len(names) == 0 {
		names = []string{lease.Name()}
	}
	why := "dibs was stopped, or the machine was too busy to run it"
	switch {
	case w.lastError != nil:
		why = errorText(causeOf(w.lastError))
	case !w.renewalSent.IsZero():
		why = "the store has not answered for " + brief(time.Since(w.renewalSent))
	}
	return rephrased{dibs.ErrLost, fmt.Sprintf("lease on %s lost: not renewed in time: %s", quoted(names), why)}
}

// faultReport returns the output function for the start of a fault. The caller holds
// w.mu.
func (w *storeMonitor) faultReport(now fault) func() {
	e := event{Event: "away", Names: w.names, Store: w.location, Error: errorText(causeOf(w.lastError))}
	text := fmt.Sprintf("%s: the store does not answer, trying again: %s", w.activity(), e.Error)
	switch {
	case now == noNotifications:
		e.Event, e.Error = "degraded", errorText(causeOf(w.degraded))
		text = fmt.Sprintf("%s: no notifications from the store, polling instead: %s", w.activity(), e.Error)
	case w.lease != nil:
		left := max(time.Until(w.lease.Deadline()), 0)
		e.Left = left.Milliseconds()
		text = fmt.Sprintf("%s: cannot renew, %s left: %s", w.activity(), brief(left), e.Error)
	}
	return func() { w.app.notify(e, text+"; store: "+w.location) }
}

// recoveryReport returns the output function for the end of a fault. The caller holds
// w.mu.
func (w *storeMonitor) recoveryReport() func() {
	after := time.Since(w.reportedSince)
	e := event{Event: "back", Names: w.names, Store: w.location, Away: after.Milliseconds()}
	text := fmt.Sprintf("%s: the store answers again, after %s", w.activity(), brief(after))
	if w.reported == noNotifications {
		text = fmt.Sprintf("%s: notifications from the store again, after %s", w.activity(), brief(after))
	}
	return func() { w.app.notify(e, text) }
}

// notify prints an event with --json, or else a line.
func (a *app) notify(e event, text string) {
	if a.json {
		a.event(e)
	}
	a.logf("%s", text)
}

// errorText returns the text of an error without the prefix "dibs: " of each part.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.TrimPrefix(err.Error(), "dibs: ")
	return strings.NewReplacer(": dibs: ", ": ", "\ndibs: ", "\n").Replace(text)
}
