package localstore

import (
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// A waitTable contains this process's waiting requests with the owners they wait for, so an owner's
// death is detected soon.
type waitTable struct {
	mu      sync.Mutex
	byToken map[string]waitEntry
	wake    map[string]func() // by client, from its Watch
}

type waitEntry struct {
	client      string
	owners      []string
	lastRequest time.Time
}

// record records the reply to a request.
func (w *waitTable) record(r driver.AcquireRequest, answer driver.AcquireReply, l *kvstore.Table) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byToken, r.Token)
	if answer.Held || answer.Ticket == 0 {
		return
	}
	var owners []string
	for _, name := range r.Names() {
		if e := l.Names[name]; e != nil {
			owners = append(owners, e.Owners(r.Token)...)
		}
	}
	if len(owners) == 0 {
		return
	}
	if w.byToken == nil {
		w.byToken = make(map[string]waitEntry)
	}
	w.byToken[r.Token] = waitEntry{r.Client, owners, time.Now()}
	if wake := w.wake[r.Client]; wake != nil {
		wake()
	}
}

func (w *waitTable) remove(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byToken, token)
}

// watch registers a function to call when a client starts to wait. The returned function removes
// it.
func (w *waitTable) watch(client string, wake func()) (end func()) {
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

// waitingForDead returns the tokens of a client's requests waiting for a dead owner, once each, and
// whether the client has other waiting requests. Requests without a recent heartbeat are dropped.
func (w *waitTable) waitingForDead(client string, dead func(owner string) bool) (tokens []string, others bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for token, wait := range w.byToken {
		switch {
		case wait.client != client:
		case time.Since(wait.lastRequest) > driver.WaiterTTL:
			delete(w.byToken, token)
		case slices.ContainsFunc(wait.owners, dead):
			tokens = append(tokens, token)
			delete(w.byToken, token)
		default:
			others = true
		}
	}
	return tokens, others
}
