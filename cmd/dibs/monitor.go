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

// A witness is a store whose failures are reported: one line when the store cannot be
// reached, and one when it answers again. Nobody looks at a command that runs for hours,
// or that waits in cron, until something is wrong.
//
// A failure is reported when it has lasted for a moment: a connection that is reset, and
// made again, is nobody's affair.
type storeMonitor struct {
	driver.Store
	app      *app
	location string

	mu         sync.Mutex
	names      []string    // empty: nothing is wanted yet
	lease      *dibs.Lease // nil: the names are waited for
	lastAnswer time.Time   // when the store has answered last, or zero
	retries    bool        // also a first failure is not the end: it is reported
	lines      chan func() // what is to be reported, in order; closed by end
	ended      bool
	written    chan struct{} // closed when all lines are written

	failingSince  time.Time     // since when each operation has failed, or zero
	lastError     error         // of the last operation that failed
	renewalSent   time.Time     // when the renewal was sent that is under way, or zero
	degraded      error         // why there are no notifications, or nil
	degradedSince time.Time     // since when
	reported      fault         // what was reported, and is not over
	reportedSince time.Time     // when that began
	recoveredAt   time.Time     // when an operation last succeeded after one that failed
	pastOutages   time.Duration // for how long the store was away, without the failure that lasts
}

// moment is how long a failure lasts before it is reported.
const reportDelay = 500 * time.Millisecond

// trouble is what is wrong with a store.
type fault int

const (
	noFault fault = iota
	noNotifications
	unreachable
)

// witness makes a store report its failures. The lines are written by a goroutine of
// their own: whoever renews a lease must not wait for a reader of stderr.
func (a *app) newMonitor(s *opened) *storeMonitor {
	const most = 16 // lines that nobody reads; more are dropped
	w := &storeMonitor{Store: s.Store, app: a, location: s.location, lines: make(chan func(), most), written: make(chan struct{})}
	go func() {
		defer close(w.written)
		for write := range w.lines {
			write()
		}
	}()
	return w
}

// hooks are those of a Client on the store.
func (w *storeMonitor) hooks() dibs.Hooks { return dibs.Hooks{Degraded: w.onDegraded} }

// waits says what the store is asked for from now on. A tireless caller goes on when the
// first question has failed.
func (w *storeMonitor) setWaiting(names []string, tireless bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names, w.lease, w.retries = names, nil, tireless
}

// holds says that it was granted.
func (w *storeMonitor) setHolding(lease *dibs.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease = lease
}

// end lets nothing more be reported: the caller has the last word.
func (w *storeMonitor) end() {
	w.mu.Lock()
	if !w.ended {
		w.ended = true
		close(w.lines)
	}
	w.mu.Unlock()
	<-w.written
}

// write has a line written. The caller holds w.mu.
func (w *storeMonitor) write(line func()) {
	if w.ended {
		return
	}
	select {
	case w.lines <- line:
	default:
	}
}

// detail has a line written behind those of trouble that came before.
func (w *storeMonitor) logVerbose(line func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(line)
}

// Acquire implements dibs.Store. Until the store has answered once, a connection that
// cannot be made is known to have asked for nothing: so there is nothing to undo, which
// would take as long again.
func (w *storeMonitor) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	const pause = 50 * time.Millisecond
	for {
		sent := time.Now()
		answer, err := w.Store.Acquire(ctx, c)
		w.record(ctx, sent, err)
		if err == nil || !unsent(err) || w.everAnswered() {
			return answer, err
		}
		// One that is cut short would not be known to have failed.
		if time.Until(c.Until) < 2*time.Since(sent)+pause || !sleep(ctx, pause) {
			return answer, &dibs.UnavailableError{Op: "acquire", Name: c.Name, Cause: causeOf(err), Refused: true}
		}
	}
}

// Extend implements dibs.Store.
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

// Release implements dibs.Store.
func (w *storeMonitor) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	sent := time.Now()
	done, err := w.Store.Release(ctx, r)
	w.record(ctx, sent, err)
	return done, err
}

// Inspect implements dibs.Store.
func (w *storeMonitor) Inspect(ctx context.Context, name string) (dibs.State, error) {
	sent := time.Now()
	state, err := w.Store.Inspect(ctx, name)
	w.record(ctx, sent, err)
	return state, err
}

// unsent reports whether an operation failed because there was no connection, and for no
// other reason: an error that joins several may hide a request that was sent.
func unsent(err error) bool {
	for err = causeOf(err); err != nil; err = errors.Unwrap(err) {
		if op, ok := err.(*net.OpError); ok { //nolint:errorlint // it goes through what is wrapped by itself
			return op.Op == "dial"
		}
	}
	return false
}

// causeOf is why a store could not be reached, without what was asked of it.
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

// saw takes note of how an operation has ended. One that its caller has given up says
// nothing of the store, and one that was sent before another was answered nothing of now.
func (w *storeMonitor) record(ctx context.Context, sent time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !errors.Is(err, dibs.ErrUnavailable):
		w.lastAnswer = time.Now()
		if !w.failingSince.IsZero() {
			w.recoveredAt = w.lastAnswer
			w.pastOutages += w.recoveredAt.Sub(w.failingSince)
			time.AfterFunc(reportDelay, w.recheck) // whether notifications flow again, too
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

// notifications is called when the store's notifications stop, and when they flow again.
// If that lasts, an operation shows whether the store is away altogether.
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
	_, _ = w.Inspect(ctx, names[0]) // saw is told
	w.recheck()
}

// report tells what has begun, or is over. The caller holds w.mu.
func (w *storeMonitor) report() {
	now := w.currentFault()
	switch {
	case w.ended || now == w.reported || len(w.names) == 0:
		return
	case now == unreachable && w.lastAnswer.IsZero() && !w.retries:
		return // the caller ends, and says why
	case now == noNotifications && time.Since(w.recoveredAt) < reportDelay:
		return // they follow, most likely
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
	// Who holds needs no notifications.
	concerned := w.lease == nil || w.reported == noNotifications || w.app.verbose || w.app.json
	switch {
	case !w.failingSince.IsZero() && time.Since(w.failingSince) >= reportDelay:
		return unreachable
	case !w.failingSince.IsZero():
		return w.reported // it is not known yet
	case w.degraded != nil && concerned && time.Since(w.degradedSince) >= reportDelay:
		return noNotifications
	}
	return noFault
}

// begun is since when there is trouble.
func (w *storeMonitor) faultBegan() time.Time {
	if !w.failingSince.IsZero() {
		return w.failingSince
	}
	return time.Now()
}

// what is to be done with the names.
func (w *storeMonitor) activity() string {
	if w.lease == nil {
		return "waiting for " + quoted(w.names)
	}
	return "holding " + quoted(w.names)
}

// awayNow is for how long the store has not answered, and zero if it does.
func (w *storeMonitor) currentOutage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failingSince.IsZero() {
		return 0
	}
	return time.Since(w.failingSince)
}

// awayFor is for how long the store could not be reached, up to now.
func (w *storeMonitor) totalOutage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failingSince.IsZero() {
		return w.pastOutages
	}
	return w.pastOutages + time.Since(w.failingSince)
}

// notRenewed is the loss of a lease whose renewals have failed, and says why.
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

// troubled returns what reports that something is wrong. The caller holds w.mu.
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

// recovered returns what reports that nothing is wrong any more. The caller holds w.mu.
func (w *storeMonitor) recoveryReport() func() {
	after := time.Since(w.reportedSince)
	e := event{Event: "back", Names: w.names, Store: w.location, Away: after.Milliseconds()}
	text := fmt.Sprintf("%s: the store answers again, after %s", w.activity(), brief(after))
	if w.reported == noNotifications {
		text = fmt.Sprintf("%s: notifications from the store again, after %s", w.activity(), brief(after))
	}
	return func() { w.app.notify(e, text) }
}

// notice is an event with --json, and else a line.
func (a *app) notify(e event, text string) {
	if a.json {
		a.event(e)
	}
	a.logf("%s", text)
}

// clean is what an error says, without the name of the library in front of each part.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.TrimPrefix(err.Error(), "dibs: ")
	return strings.NewReplacer(": dibs: ", ": ", "\ndibs: ", "\n").Replace(text)
}
