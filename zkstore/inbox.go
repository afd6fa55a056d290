package zkstore

import (
	"context"
	"sync"

	"github.com/dibslock/dibs/driver"
)

// An inbox delivers events to a client while its Watch runs. It is safe for concurrent use.
type inbox struct {
	ctx context.Context // ends with the Watch
	on  func(driver.Event)

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // goroutines and calls of on
}

// enter begins a piece of work. It returns false after close.
func (in *inbox) enter() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.work.Add(1)
	}
	return !in.closed
}

// send delivers an event.
func (in *inbox) send(e driver.Event) {
	if in.enter() {
		defer in.work.Done()
		in.on(e)
	}
}

// run runs a goroutine that ends with the inbox's context.
func (in *inbox) run(f func()) {
	if !in.enter() {
		return
	}
	go func() {
		defer in.work.Done()
		f()
	}()
}

// close waits for all work.
func (in *inbox) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.work.Wait()
}

// inboxes are the open inboxes, by client. They are safe for concurrent use.
type inboxes struct {
	mu  sync.Mutex
	all map[string]*inbox
}

func newInboxes() *inboxes { return &inboxes{all: make(map[string]*inbox)} }

// get returns a client's inbox, or nil.
func (is *inboxes) get(client string) *inbox {
	is.mu.Lock()
	defer is.mu.Unlock()
	return is.all[client]
}

func (is *inboxes) add(client string, in *inbox) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.all[client] = in
}

func (is *inboxes) remove(client string, in *inbox) {
	is.mu.Lock()
	defer is.mu.Unlock()
	if is.all[client] == in {
		delete(is.all, client)
	}
}
