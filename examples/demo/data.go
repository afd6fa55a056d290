package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A sharedData is a store for locks and the data that they protect. The workers share both.
type sharedData interface {
	locks() driver.Store
	number(name string) number
	register() register
}

// A number is a shared number. Reading and writing are separate steps.
type number interface {
	get(ctx context.Context) (int64, error)
	set(ctx context.Context, value int64) error
}

// A register accepts writes and stores the largest fence among accepted writes.
type register interface {
	// write reports whether it accepted a write. It rejects a smaller fence.
	write(ctx context.Context, fence uint64) (accepted bool, err error)
	largest(ctx context.Context) (fence uint64, err error)
}

// A memoryData is sharedData in this process.
type memoryData struct {
	store        *memstore.Store
	registerData memoryRegister

	mu      sync.Mutex
	numbers map[string]*memoryNumber
}

func newMemoryData() *memoryData {
	return &memoryData{store: memstore.New(), numbers: make(map[string]*memoryNumber)}
}

func (m *memoryData) locks() driver.Store { return m.store }
func (m *memoryData) register() register  { return &m.registerData }

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

// A memoryNumber is atomic to satisfy the race detector. A read followed by a write is
// still not atomic: updates are lost.
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
