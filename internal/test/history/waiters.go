package history

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Waiters is a store that records which waiters it may serve after younger waiters. These are the
// exceptions in docs/guarantees.md: the waiter is late, has no subscription, or was silent. The
// machine's stalls cause them. It is safe for concurrent use.
type Waiters struct {
	*driver.Full

	mu      sync.Mutex
	clients map[string]*subscription
	waiters map[string]*waiterFacts // by token
}

// A subscription describes a client's events.
type subscription struct {
	connected bool
	broke     bool // at least once
}

type waiterFacts struct {
	client    *subscription
	sent      time.Time // the last answered request
	exception bool
}

// NewWaiters returns the store with a record of its waiters. All clients must use it.
func NewWaiters(s driver.Store) *Waiters {
	return &Waiters{Full: driver.Complete(s), clients: make(map[string]*subscription), waiters: make(map[string]*waiterFacts)}
}

// MayPassOver reports whether the store may have served younger waiters before the waiter with this
// token.
func (w *Waiters) MayPassOver(token string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.waiters[token]
	return f != nil && (f.exception || f.client.broke)
}

// Acquire implements driver.Store.
func (w *Waiters) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	w.requested(r)
	sent := time.Now()
	reply, err := w.Store.Acquire(ctx, r)
	if err == nil {
		w.answered(r, sent)
	}
	return reply, err
}

// requested records a request before it is sent.
func (w *Waiters) requested(r driver.AcquireRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.waiters[r.Token]
	if f == nil {
		f = &waiterFacts{client: w.subscription(r.Client)}
		w.waiters[r.Token] = f
	}
	if r.Late || r.Queue && !f.client.connected {
		f.exception = true
	}
}

// answered records an answer to a request. The waiter was silent at most since the previous request
// was sent.
func (w *Waiters) answered(r driver.AcquireRequest, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.waiters[r.Token]
	if r.Ticket != 0 && time.Since(f.sent) >= driver.WaiterTTL {
		f.exception = true
	}
	f.sent = sent
}

// subscription returns a client's subscription. The caller must hold the lock.
func (w *Waiters) subscription(client string) *subscription {
	s := w.clients[client]
	if s == nil {
		s = new(subscription)
		w.clients[client] = s
	}
	return s
}

// Watch implements driver.Store.
func (w *Waiters) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return w.Store.Watch(ctx, client, busy, w.recorded(client, on))
}

// recorded returns a function that records the subscription's state, and calls on.
func (w *Waiters) recorded(client string, on func(driver.Event)) func(driver.Event) {
	return func(e driver.Event) {
		if e.Kind == driver.EventConnected || e.Kind == driver.EventDisconnected {
			w.setConnected(client, e.Kind == driver.EventConnected)
		}
		on(e)
	}
}

func (w *Waiters) setConnected(client string, connected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.subscription(client)
	s.broke = s.broke || s.connected && !connected
	s.connected = connected
}
