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

// Wanted returns a channel that closes when another request waits for a name in the lease. The
// holder should then finish soon and unlock. The channel stays closed, even if the request is
// cancelled later. The lease's end does not close it, so the holder should also wait for
// Context().Done().
//
// The first call asks the store, in the background, to notify this client of the first waiter;
// further calls send nothing. The channel then closes half a round trip after the first waiter
// queued. If the notification is lost, or the store cannot notify, it closes at the next renewal,
// and without renewals perhaps never.
//
// Waiters from other libraries are not detected. The exception is a store with the option
// redisstore.Redisson: the first call and each renewal then detect Redisson's waiters.
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

// IsWanted reports whether another request waits for a name in the lease. The first call asks the
// store and waits for its answer, until ctx or the operation timeout ends. After this answer, the
// store notifies the client of waiters, as for Wanted, so further calls send nothing. Without an
// answer IsWanted returns an error, and the client asks the store again in the background.
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

// wantedSignal returns the lease's signal, and whether this is the first call.
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

// A wantedSignal is Lease.Wanted's state. It is safe for concurrent use.
type wantedSignal struct {
	l       *lease
	channel chan struct{}

	mu          sync.Mutex // guards the fields below
	set         bool       // the channel is closed
	registering bool       // a goroutine is asking the store
	answered    bool       // the store answered the last question
	again       bool       // ask once more: an event may have been lost since the last question
}

// answer returns whether a request is known to wait, and whether the store answered the last
// question.
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

// register asks the store in the background, repeatedly until it answers.
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

// mustRepeat reports whether to ask the store again, after a pause if it did not answer. The next
// renewal also asks again.
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

// notifyWanted asks the store once to notify the client of each name's next waiter.
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

// wantedSignals contains the signals for a client's leases, by token. The zero value is ready for
// use. It is safe for concurrent use.
type wantedSignals struct {
	mu      sync.Mutex
	byToken map[string][]*wantedSignal // several if a lease was attached in the same process
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

// of returns the signals for leases with a token.
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
