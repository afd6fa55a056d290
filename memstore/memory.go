package memstore

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/locktable"
	"github.com/dibslock/dibs/kvstore"
)

// A memory is a lock table with a mutex, a clock and watchers.
type memory struct {
	clock    func() time.Time
	epoch    time.Time // origin for the lock table's time
	mu       sync.Mutex
	table    *locktable.Table
	watchers map[string][]*watcher // by client
}

type watcher struct{ on func(driver.Event) }

func (m *memory) now() locktable.Now {
	now := m.clock()
	return locktable.Now{At: now.Sub(m.epoch), Wall: now}
}

func (m *memory) loseData() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table = locktable.New()
	m.table.Node, m.table.RestartedAt = rand.Text(), m.now().At
}

// Do implements kvstore.Tables.
func (m *memory) Do(_ context.Context, o *kvstore.Operation) error {
	m.mu.Lock()
	now := m.now()
	if o.Acquires() {
		swept := m.table.Sweep(now)
		m.send(append(swept, o.Run(m.table, now)...))
	} else {
		m.send(o.Run(m.table, now))
	}
	return nil
}

// run runs an operation, and sends its notifications.
func (m *memory) run(op func(*locktable.Table, locktable.Now) []locktable.Notification) {
	m.mu.Lock()
	m.send(op(m.table, m.now()))
}

// send unlocks the mutex, and then sends the notifications to those who watch at this moment.
func (m *memory) send(notifications []locktable.Notification) {
	to := make([][]*watcher, len(notifications))
	for i, n := range notifications {
		to[i] = m.watchers[n.Client]
	}
	m.mu.Unlock()
	for i, n := range notifications {
		for _, w := range to[i] {
			w.on(n.Event)
		}
	}
}

// Watch implements kvstore.Tables.
func (m *memory) Watch(ctx context.Context, client string, _ func() bool, on func(driver.Event)) error {
	w := &watcher{on: on}
	m.mu.Lock()
	m.watchers[client] = append(m.watchers[client], w)
	m.mu.Unlock()
	on(driver.Event{Kind: driver.EventConnected})
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(m.watchers[client]), func(o *watcher) bool { return o == w })
	if len(left) == 0 {
		delete(m.watchers, client)
	} else {
		m.watchers[client] = left
	}
	return context.Cause(ctx)
}
