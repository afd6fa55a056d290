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
type witness struct {
	driver.Store
	app   *app
	where string

	mu       sync.Mutex
	names    []string    // empty: nothing is wanted yet
	lease    *dibs.Lease // nil: the names are waited for
	answered time.Time   // when the store has answered last, or zero
	tireless bool        // also a first failure is not the end: it is reported
	lines    chan func() // what is to be reported, in order; closed by end
	ended    bool
	written  chan struct{} // closed when all lines are written

	failing  time.Time     // since when each operation has failed, or zero
	failure  error         // of the last operation that failed
	asking   time.Time     // when the renewal was sent that is under way, or zero
	degraded error         // why there are no notifications, or nil
	missing  time.Time     // since when
	reported trouble       // what was reported, and is not over
	since    time.Time     // when that began
	back     time.Time     // when an operation last succeeded after one that failed
	away     time.Duration // for how long the store was away, without the failure that lasts
}

// moment is how long a failure lasts before it is reported.
const moment = 500 * time.Millisecond

// trouble is what is wrong with a store.
type trouble int

const (
	none trouble = iota
	noNotifications
	unreachable
)

// witness makes a store report its failures. The lines are written by a goroutine of
// their own: whoever renews a lease must not wait for a reader of stderr.
func (a *app) witness(s *opened) *witness {
	const most = 16 // lines that nobody reads; more are dropped
	w := &witness{Store: s.Store, app: a, where: s.where, lines: make(chan func(), most), written: make(chan struct{})}
	go func() {
		defer close(w.written)
		for write := range w.lines {
			write()
		}
	}()
	return w
}

// hooks are those of a Client on the store.
func (w *witness) hooks() dibs.Hooks { return dibs.Hooks{Degraded: w.notifications} }

// waits says what the store is asked for from now on. A tireless caller goes on when the
// first question has failed.
func (w *witness) waits(names []string, tireless bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names, w.lease, w.tireless = names, nil, tireless
}

// holds says that it was granted.
func (w *witness) holds(lease *dibs.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease = lease
}

// end lets nothing more be reported: the caller has the last word.
func (w *witness) end() {
	w.mu.Lock()
	if !w.ended {
		w.ended = true
		close(w.lines)
	}
	w.mu.Unlock()
	<-w.written
}

// write has a line written. The caller holds w.mu.
func (w *witness) write(line func()) {
	if w.ended {
		return
	}
	select {
	case w.lines <- line:
	default:
	}
}

// detail has a line written behind those of trouble that came before.
func (w *witness) detail(line func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(line)
}

// Acquire implements dibs.Store. Until the store has answered once, a connection that
// cannot be made is known to have asked for nothing: so there is nothing to undo, which
// would take as long again.
func (w *witness) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	const pause = 50 * time.Millisecond
	for {
		sent := time.Now()
		answer, err := w.Store.Acquire(ctx, c)
		w.saw(ctx, sent, err)
		if err == nil || !unsent(err) || w.reached() {
			return answer, err
		}
		// One that is cut short would not be known to have failed.
		if time.Until(c.Until) < 2*time.Since(sent)+pause || !sleep(ctx, pause) {
			return answer, &dibs.UnavailableError{Op: "acquire", Name: c.Name, Cause: causeOf(err), Refused: true}
		}
	}
}

// Extend implements dibs.Store.
func (w *witness) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	sent := time.Now()
	w.sent(sent)
	errs := w.Store.Extend(ctx, holds)
	w.sent(time.Time{})
	for _, err := range errs {
		if errors.Is(err, dibs.ErrUnavailable) {
			w.saw(ctx, sent, err)
			return errs
		}
	}
	w.saw(ctx, sent, nil)
	return errs
}

// Release implements dibs.Store.
func (w *witness) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	sent := time.Now()
	done, err := w.Store.Release(ctx, r)
	w.saw(ctx, sent, err)
	return done, err
}

// Inspect implements dibs.Store.
func (w *witness) Inspect(ctx context.Context, name string) (dibs.State, error) {
	sent := time.Now()
	state, err := w.Store.Inspect(ctx, name)
	w.saw(ctx, sent, err)
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

func (w *witness) reached() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.answered.IsZero()
}

func (w *witness) sent(renewal time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking = renewal
}

// saw takes note of how an operation has ended. One that its caller has given up says
// nothing of the store, and one that was sent before another was answered nothing of now.
func (w *witness) saw(ctx context.Context, sent time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !errors.Is(err, dibs.ErrUnavailable):
		w.answered = time.Now()
		if !w.failing.IsZero() {
			w.back = w.answered
			w.away += w.back.Sub(w.failing)
			time.AfterFunc(moment, w.check) // whether notifications flow again, too
		}
		w.failing, w.failure = time.Time{}, nil
		w.report()
		return
	case errors.Is(ctx.Err(), context.Canceled), sent.Before(w.answered):
		return
	}
	w.failure = err
	if w.failing.IsZero() {
		w.failing = sent
		time.AfterFunc(time.Until(sent.Add(moment)), w.check)
	}
}

func (w *witness) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report()
}

// notifications is called when the store's notifications stop, and when they flow again.
// If that lasts, an operation shows whether the store is away altogether.
func (w *witness) notifications(d dibs.Degraded) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.degraded, w.missing = d.Err, time.Now()
	if d.Err == nil {
		w.report()
		return
	}
	time.AfterFunc(moment, w.probe)
}

func (w *witness) probe() {
	w.mu.Lock()
	names, needed := w.names, w.degraded != nil && w.failing.IsZero() && !w.ended
	w.mu.Unlock()
	if !needed || len(names) == 0 {
		return
	}
	ctx, cancel := w.app.within(context.Background())
	defer cancel()
	_, _ = w.Inspect(ctx, names[0]) // saw is told
	w.check()
}

// report tells what has begun, or is over. The caller holds w.mu.
func (w *witness) report() {
	now := w.trouble()
	switch {
	case w.ended || now == w.reported || len(w.names) == 0:
		return
	case now == unreachable && w.answered.IsZero() && !w.tireless:
		return // the caller ends, and says why
	case now == noNotifications && time.Since(w.back) < moment:
		return // they follow, most likely
	case now == none:
		w.write(w.recovered())
	default:
		w.write(w.troubled(now))
	}
	if w.reported == none {
		w.since = w.begun()
	}
	w.reported = now
}

func (w *witness) trouble() trouble {
	// Who holds needs no notifications.
	concerned := w.lease == nil || w.reported == noNotifications || w.app.verbose || w.app.json
	switch {
	case !w.failing.IsZero() && time.Since(w.failing) >= moment:
		return unreachable
	case !w.failing.IsZero():
		return w.reported // it is not known yet
	case w.degraded != nil && concerned && time.Since(w.missing) >= moment:
		return noNotifications
	}
	return none
}

// begun is since when there is trouble.
func (w *witness) begun() time.Time {
	if !w.failing.IsZero() {
		return w.failing
	}
	return time.Now()
}

// what is to be done with the names.
func (w *witness) what() string {
	if w.lease == nil {
		return "waiting for " + quoted(w.names)
	}
	return "holding " + quoted(w.names)
}

// awayNow is for how long the store has not answered, and zero if it does.
func (w *witness) awayNow() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing.IsZero() {
		return 0
	}
	return time.Since(w.failing)
}

// awayFor is for how long the store could not be reached, up to now.
func (w *witness) awayFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing.IsZero() {
		return w.away
	}
	return w.away + time.Since(w.failing)
}

// notRenewed is the loss of a lease whose renewals have failed, and says why.
func (w *witness) notRenewed(lease *dibs.Lease) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.names
	if len(names) == 0 {
		names = []string{lease.Name()}
	}
	why := "dibs was stopped, or the machine was too busy to run it"
	switch {
	case w.failure != nil:
		why = clean(causeOf(w.failure))
	case !w.asking.IsZero():
		why = "the store has not answered for " + brief(time.Since(w.asking))
	}
	return retold{dibs.ErrLost, fmt.Sprintf("lease on %s lost: not renewed in time: %s", quoted(names), why)}
}

// troubled returns what reports that something is wrong. The caller holds w.mu.
func (w *witness) troubled(now trouble) func() {
	e := event{Event: "away", Names: w.names, Store: w.where, Error: clean(causeOf(w.failure))}
	text := fmt.Sprintf("%s: the store does not answer, trying again: %s", w.what(), e.Error)
	switch {
	case now == noNotifications:
		e.Event, e.Error = "degraded", clean(causeOf(w.degraded))
		text = fmt.Sprintf("%s: no notifications from the store, polling instead: %s", w.what(), e.Error)
	case w.lease != nil:
		left := max(time.Until(w.lease.Deadline()), 0)
		e.Left = left.Milliseconds()
		text = fmt.Sprintf("%s: cannot renew, %s left: %s", w.what(), brief(left), e.Error)
	}
	return func() { w.app.notice(e, text+"; store: "+w.where) }
}

// recovered returns what reports that nothing is wrong any more. The caller holds w.mu.
func (w *witness) recovered() func() {
	after := time.Since(w.since)
	e := event{Event: "back", Names: w.names, Store: w.where, Away: after.Milliseconds()}
	text := fmt.Sprintf("%s: the store answers again, after %s", w.what(), brief(after))
	if w.reported == noNotifications {
		text = fmt.Sprintf("%s: notifications from the store again, after %s", w.what(), brief(after))
	}
	return func() { w.app.notice(e, text) }
}

// notice is an event with --json, and else a line.
func (a *app) notice(e event, text string) {
	if a.json {
		a.event(e)
	}
	a.say("%s", text)
}

// clean is what an error says, without the name of the library in front of each part.
func clean(err error) string {
	if err == nil {
		return ""
	}
	text := strings.TrimPrefix(err.Error(), "dibs: ")
	return strings.NewReplacer(": dibs: ", ": ", "\ndibs: ", "\n").Replace(text)
}
