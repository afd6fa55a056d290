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
func (l *Lease) Wanted() <-chan struct{} {
	if l.isZero() {
		return nil
	}
	signal, isNew := l.h.wantedSignal()
	if isNew {
		l.h.registerWanted()
	}
	return signal.channel
}

// IsWanted reports whether another request waits for a name of the lease. The first call asks the
// store and waits for its answer, at most for the operation timeout. After the answer that none
// waits, the channel of Wanted says so, and further calls cost nothing. Without an answer IsWanted
// returns an error; then the store is asked again in the background.
func (l *Lease) IsWanted(ctx context.Context) (bool, error) {
	if l.isZero() {
		return false, errNoLease
	}
	h := l.h
	signal, _ := h.wantedSignal()
	if known, answered := h.wantedAnswer(); known || answered {
		return known, nil
	}
	if !h.c.begin() {
		return false, ErrClosed
	}
	defer h.c.work.Done()
	err := h.notifyWanted(work.Detach(ctx, h.values()))
	h.recordAnswer(err)
	if err != nil {
		h.registerWanted()
	}
	select {
	case <-signal.channel:
		return true, nil
	default:
		return false, err
	}
}

// wantedAnswer returns whether it is known that a request waits, and whether the store has
// answered the last question.
func (h *lease) wantedAnswer() (wanted, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	signal := h.extra().wanted
	return signal.set, signal.answered
}

func (h *lease) recordAnswer(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.extra().wanted.answered = err == nil
}

// A wantedSignal is the state of Lease.Wanted. The lock of the lease guards it.
type wantedSignal struct {
	channel     chan struct{}
	set         bool // the channel is closed
	registering bool // a goroutine asks the store
	answered    bool // the store has answered the last question
	again       bool // it must ask once more, because an event may have been lost since it asked
}

// wantedLeases are the leases for which Wanted was called, by token. The zero value is
// ready for use. It is safe for concurrent use.
type wantedLeases struct {
	mu      sync.Mutex
	byToken map[string][]*lease // more than one if a lease was attached in the same process
}

func (w *wantedLeases) add(h *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byToken == nil {
		w.byToken = make(map[string][]*lease)
	}
	w.byToken[h.token] = append(w.byToken[h.token], h)
}

func (w *wantedLeases) remove(h *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(w.byToken[h.token]), func(o *lease) bool { return o == h })
	if len(left) == 0 {
		delete(w.byToken, h.token)
		return
	}
	w.byToken[h.token] = left
}

// of returns the leases with a token.
func (w *wantedLeases) of(token string) []*lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byToken[token]
}

func (w *wantedLeases) all() (all []*lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, leases := range w.byToken {
		all = append(all, leases...)
	}
	return all
}

// wantedSignal returns the signal of the lease, and whether this is the first call.
func (h *lease) wantedSignal() (signal *wantedSignal, isNew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.extra().wanted; before != nil {
		return before, false
	}
	signal = &wantedSignal{channel: make(chan struct{})}
	h.changeExtra().wanted = signal
	if !h.ended && h.c.begin() { // an attached lease may be the first of its client
		h.c.wanted.add(h)
		h.c.work.Done()
	}
	return signal, true
}

// setWanted closes the channel of Wanted.
func (h *lease) setWanted() {
	h.mu.Lock()
	signal := h.extra().wanted
	if signal != nil && !signal.set {
		signal.set = true
		close(signal.channel)
	}
	h.mu.Unlock()
}

// registerWanted asks the store in the background, again and again until it answers.
func (h *lease) registerWanted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	signal := h.extra().wanted
	switch {
	case h.ended || signal.set:
	case signal.registering:
		signal.again = true
	default:
		signal.registering = h.c.work.Run(func(ctx context.Context) {
			ctx = work.Detach(ctx, h.values())
			for h.mustRepeat(ctx, h.notifyWanted(ctx)) {
			}
		})
	}
}

// mustRepeat reports whether the store is to be asked again, after a pause if it has not
// answered. The next renewal asks again, too.
func (h *lease) mustRepeat(ctx context.Context, err error) bool {
	const between = 250 * time.Millisecond
	answered := err == nil || answer.IsRefusal(err) || answer.IsPermanent(err)
	stopped := !answered && !work.Pause(ctx, between)
	h.mu.Lock()
	defer h.mu.Unlock()
	signal := h.extra().wanted
	signal.answered = err == nil
	if stopped || h.ended || signal.set || answered && !signal.again {
		signal.registering = false
	}
	signal.again = false
	return signal.registering
}

// notifyWanted asks the store once for a notification of the next waiter of each name.
func (h *lease) notifyWanted(ctx context.Context) error {
	h.mu.Lock()
	names := h.names()
	h.mu.Unlock()
	var errs []error
	for _, p := range names {
		request := driver.WantedRequest{Name: p.name, Token: h.token, Client: h.c.id}
		errs = append(errs, h.c.acquirer.Retry(ctx, time.Now().Add(h.timeout()), func(a acquire.Attempt) error {
			wanted, err := h.c.store.NotifyWanted(ctx, a.Until, request)
			if wanted {
				h.setWanted()
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

// registerWanted asks the store again for all leases, because events may have been lost.
func (c *Client) registerWanted() {
	for _, h := range c.wanted.all() {
		h.registerWanted()
	}
}
