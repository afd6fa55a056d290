// Package inbox delivers the events of a store to the Watch of a client. It is for store authors.
package inbox

import (
	"context"
	"sync"

	"github.com/dibslock/dibs/driver"
)

// An Inbox delivers events to a client while its Watch runs. It is safe for concurrent use.
type Inbox struct {
	Context context.Context // ends with the Watch

	on func(driver.Event)

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // goroutines and calls of on
}

// New returns an Inbox for a call of Watch, which should call Close in the end.
func New(ctx context.Context, on func(driver.Event)) *Inbox { return &Inbox{Context: ctx, on: on} }

// enter begins a piece of work. It returns false after Close.
func (in *Inbox) enter() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.work.Add(1)
	}
	return !in.closed
}

// Send delivers an event, unless the Watch ended.
func (in *Inbox) Send(e driver.Event) {
	if in.enter() {
		defer in.work.Done()
		in.on(e)
	}
}

// Run runs f in a goroutine, unless the Watch ended. f should end with the Context.
func (in *Inbox) Run(f func()) {
	if !in.enter() {
		return
	}
	go func() {
		defer in.work.Done()
		f()
	}()
}

// Close ends the deliveries, and waits for those that began and for the goroutines of Run.
func (in *Inbox) Close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.work.Wait()
}

// Inboxes are the open inboxes, by client. The zero value is empty. They are safe for concurrent use.
type Inboxes struct {
	mu  sync.Mutex
	all map[string]*Inbox
}

// Get returns a client's inbox, or nil.
func (is *Inboxes) Get(client string) *Inbox {
	is.mu.Lock()
	defer is.mu.Unlock()
	return is.all[client]
}

// Add adds a client's inbox, in the place of an earlier one.
func (is *Inboxes) Add(client string, in *Inbox) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.all == nil {
		is.all = make(map[string]*Inbox)
	}
	is.all[client] = in
}

// Remove removes a client's inbox, unless another replaced it.
func (is *Inboxes) Remove(client string, in *Inbox) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.all[client] == in {
		delete(is.all, client)
	}
}
