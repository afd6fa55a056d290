package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A sharedData is what the workers share: a store of locks, and data that nothing
// guards but these locks.
type sharedData interface {
	locks() driver.Store
	number(name string) number
	register() register
}

// A number is shared, and read and written one step at a time.
type number interface {
	get(ctx context.Context) (int64, error)
	set(ctx context.Context, value int64) error
}

// A register takes writes, and remembers the largest fence that came with one.
type register interface {
	// write reports whether it took a write. It refuses an older fence.
	write(ctx context.Context, fence uint64) (taken bool, err error)
	largest(ctx context.Context) (fence uint64, err error)
}

// A memoryData is a site in this process.
type memoryData struct {
	store *memstore.Store
	entry memoryRegister

	mu      sync.Mutex
	numbers map[string]*memoryNumber
}

func newMemoryData() *memoryData {
	return &memoryData{store: memstore.New(), numbers: make(map[string]*memoryNumber)}
}

func (m *memoryData) locks() driver.Store { return m.store }
func (m *memoryData) register() register  { return &m.entry }

func (m *memoryData) number(name string) number {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.numbers[name]
	if n == nil {
		n = new(memoryNumber)
		m.numbers[name] = n
	}
	return n
}

// A memoryNumber is atomic to please the race detector. That does not make a
// read and a write one step: updates are lost all the same.
type memoryNumber struct{ value atomic.Int64 }

func (n *memoryNumber) get(ctx context.Context) (int64, error) { return n.value.Load(), ctx.Err() }

func (n *memoryNumber) set(ctx context.Context, value int64) error {
	n.value.Store(value)
	return ctx.Err()
}

type memoryRegister struct {
	mu   sync.Mutex
	seen uint64
}

func (r *memoryRegister) write(ctx context.Context, fence uint64) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fence < r.seen {
		return false, ctx.Err()
	}
	r.seen = fence
	return true, ctx.Err()
}

func (r *memoryRegister) largest(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen, ctx.Err()
}
