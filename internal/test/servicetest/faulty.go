package servicetest

import (
	"context"
	"slices"
	"sync"

	"github.com/dibslock/dibs/driver"
)

// A Faulty is a store whose operations fail while an error is set for them. It is safe for
// concurrent use.
type Faulty struct {
	*driver.Full

	mu   sync.Mutex
	errs map[string]error // by operation
}

// NewFaulty returns a store with another store's operations.
func NewFaulty(store driver.Store) *Faulty {
	return &Faulty{Full: driver.Complete(store), errs: make(map[string]error)}
}

// Fail makes operations fail, or succeed again if err is nil. They are acquire, release and
// extend.
func (f *Faulty) Fail(err error, operations ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range operations {
		f.errs[o] = err
	}
}

func (f *Faulty) failure(operation string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs[operation]
}

// Acquire implements driver.Store.
func (f *Faulty) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := f.failure("acquire"); err != nil {
		return driver.AcquireReply{}, err
	}
	return f.Store.Acquire(ctx, r)
}

// Release implements driver.Store.
func (f *Faulty) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if err := f.failure("release"); err != nil {
		return false, err
	}
	return f.Store.Release(ctx, r)
}

// Extend implements driver.Store.
func (f *Faulty) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	if err := f.failure("extend"); err != nil {
		return slices.Repeat([]error{err}, len(requests))
	}
	return f.Store.Extend(ctx, requests)
}
