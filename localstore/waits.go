package localstore

import (
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// A waitTable has the waiting requests of this process with the owners of the leases they
// wait for, so that the death of an owner is detected soon.
type waits struct {
	mu   sync.Mutex
	all  map[string]waitFor // by token
	wake map[string]func()  // by client, of its Watch
}

type waitFor struct {
	client string
	owners []string
	asked  time.Time
}

// record records the reply to a request.
func (w *waits) note(c driver.AcquireRequest, answer driver.AcquireReply, l *locktable.Table) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, c.Token)
	if answer.Held || answer.Ticket == 0 {
		return
	}
	var owners []string
	for _, name := range locktable.Names(c) {
		if e := l.Names[name]; e != nil {
			owners = append(owners, e.Owners(c.Token)...)
		}
	}
	if len(owners) == 0 {
		return
	}
	if w.all == nil {
		w.all = make(map[string]waitFor)
	}
	w.all[c.Token] = waitFor{c.Client, owners, time.Now()}
	if wake := w.wake[c.Client]; wake != nil {
		wake()
	}
}

func (w *waits) forget(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, token)
}

// watch registers a function that is called when a client starts to wait. The returned
// function removes it.
func (w *waits) watch(client string, wake func()) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wake == nil {
		w.wake = make(map[string]func())
	}
	w.wake[client] = wake
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.wake, client)
	}
}

// waitingForDead returns the tokens of a client's requests that wait for a dead owner,
// once each, and whether the client has other waiting requests. Requests without a recent
// heartbeat are dropped.
func (w *waits) over(client string, dead func(owner string) bool) (tokens []string, others bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for token, wait := range w.all {
		switch {
		case wait.client != client:
		case time.Since(wait.asked) > driver.WaiterTTL:
			delete(w.all, token)
		case slices.ContainsFunc(wait.owners, dead):
			tokens = append(tokens, token)
			delete(w.all, token)
		default:
			others = true
		}
	}
	return tokens, others
}
