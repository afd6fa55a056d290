package dibs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/acquire"
	"github.com/dibslock/dibs/internal/answer"
	"github.com/dibslock/dibs/internal/work"
)

// Wanted returns a channel that is closed when another request waits for a name of the
// lease. The holder can then finish soon, and unlock. The channel stays closed, also if that
// request is cancelled later. It is not closed when the lease ends: wait for
// Context().Done() too.
//
// The first call asks the store, in the background, to notify this client of the first
// waiter; further calls cost nothing. A lease for which Wanted is not called costs nothing
// either. The channel is closed half a round trip after the first waiter has queued. If
// the notification is lost, or the store cannot notify, it is closed at the next renewal.
// A lease that is not renewed may then never learn of the waiter. Of clients of other
// libraries the store sees at most those of Redisson in Redisson mode, at the first call and
// at each renewal.
func (handle *Lease) Wanted() <-chan struct{} {
	if handle.isZero() {
		return nil
	}
	signal, isNew := handle.lease().wantedSignal()
	if isNew {
		signal.register()
	}
	return signal.channel
}

// IsWanted reports whether another request waits for a name of the lease. The first call asks the
// store and waits for its answer, at most for the operation timeout. After the answer that none
// waits, the channel of Wanted says so, and further calls cost nothing. Without an answer IsWanted
// returns an error; then the store is asked again in the background.
func (handle *Lease) IsWanted(ctx context.Context) (bool, error) {
	if handle.isZero() {
		return false, errNoLease
	}
	l := handle.lease()
	signal, _ := l.wantedSignal()
	if known, answered := signal.answer(); known || answered {
		return known, nil
	}
	if !l.c.begin() {
		return false, ErrClosed
	}
	defer l.c.work.Done()
	err := signal.notifyWanted(work.Detach(ctx, l.values()))
	signal.recordAnswer(err)
	if err != nil {
		signal.register()
	}
	select {
	case <-signal.channel:
		return true, nil
	default:
		return false, err
	}
}

// wantedSignal returns the signal of the lease, and whether this is the first call.
func (l *lease) wantedSignal() (signal *wantedSignal, isNew bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.extraLocked()
	if x.wanted != nil {
		return x.wanted, false
	}
	x.wanted = &wantedSignal{l: l, channel: make(chan struct{})}
	if !l.state.Reason().IsEnd() {
		l.c.wanted.add(x.wanted)
	}
	return x.wanted, true
}

// A wantedSignal is the state of Lease.Wanted. It is safe for concurrent use.
type wantedSignal struct {
	l       *lease
	channel chan struct{}

	mu          sync.Mutex // guards the fields below
	set         bool       // the channel is closed
	registering bool       // a goroutine asks the store
	answered    bool       // the store has answered the last question
	again       bool       // it must ask once more, because an event may have been lost since it asked
}

// answer returns whether it is known that a request waits, and whether the store has
// answered the last question.
func (w *wantedSignal) answer() (wanted, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.set, w.answered
}

func (w *wantedSignal) recordAnswer(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = err == nil
}

// close closes the channel.
func (w *wantedSignal) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.set {
		w.set = true
		close(w.channel)
	}
}

// register asks the store in the background, again and again until it answers.
func (w *wantedSignal) register() {
	if w.l.reason().IsEnd() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.set:
	case w.registering:
		w.again = true
	default:
		w.registering = w.l.c.work.Run(func(ctx context.Context) {
			ctx = work.Detach(ctx, w.l.values())
			for w.mustRepeat(ctx, w.notifyWanted(ctx)) {
			}
		})
	}
}

// mustRepeat reports whether the store is to be asked again, after a pause if it has not
// answered. The next renewal asks again, too.
func (w *wantedSignal) mustRepeat(ctx context.Context, err error) bool {
	const between = 250 * time.Millisecond
	answered := err == nil || answer.IsRefusal(err) || answer.IsPermanent(err)
	stopped := !answered && !work.Pause(ctx, between)
	ended := w.l.reason().IsEnd()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answered = err == nil
	if stopped || ended || w.set || answered && !w.again {
		w.registering = false
	}
	w.again = false
	return w.registering
}

// notifyWanted asks the store once for a notification of the next waiter of each name.
func (w *wantedSignal) notifyWanted(ctx context.Context) error {
	l := w.l
	s := l.LockState()
	names := s.Names()
	l.UnlockState()
	var errs []error
	for _, n := range names {
		request := driver.WantedRequest{Name: n.Name, Token: s.Token, Client: l.c.id}
		errs = append(errs, l.c.retry(ctx, time.Now().Add(l.timeout()), func(a acquire.Attempt) error {
			wanted, err := l.c.store.NotifyWanted(ctx, a.Until, request)
			if wanted {
				w.close()
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// wantedSignals are those of the leases of a client, by token. The zero value is
// ready for use. It is safe for concurrent use.
type wantedSignals struct {
	mu      sync.Mutex
	byToken map[string][]*wantedSignal // more than one if a lease was attached in the same process
}

func (w *wantedSignals) add(signal *wantedSignal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byToken == nil {
		w.byToken = make(map[string][]*wantedSignal)
	}
	token := signal.l.state.Token
	w.byToken[token] = append(w.byToken[token], signal)
}

func (w *wantedSignals) remove(signal *wantedSignal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	token := signal.l.state.Token
	left := slices.DeleteFunc(slices.Clone(w.byToken[token]), func(o *wantedSignal) bool { return o == signal })
	if len(left) == 0 {
		delete(w.byToken, token)
		return
	}
	w.byToken[token] = left
}

// of returns the signals of the leases with a token.
func (w *wantedSignals) of(token string) []*wantedSignal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byToken[token]
}

// registerAll asks the store again for all leases, because events may have been lost.
func (w *wantedSignals) registerAll() {
	w.mu.Lock()
	var all []*wantedSignal
	for _, signals := range w.byToken {
		all = append(all, signals...)
	}
	w.mu.Unlock()
	for _, signal := range all {
		signal.register()
	}
}
