package localstore

import (
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
)

// waits are the claims of this process that wait, and for whom: so that it can be seen soon
// that one of these is dead.
type waits struct {
	mu   sync.Mutex
	all  map[string]waitFor // by token
	wake map[string]func()  // by client, of each Watch
}

type waitFor struct {
	client string
	owners []string
	asked  time.Time
}

// note notes what became of a claim.
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

// watch has wake called when a client begins to wait; the returned function ends that.
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

// over returns the claims of a client that wait for somebody who is dead, once each, and
// whether others wait. Those that have not asked for long do not wait any more.
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
