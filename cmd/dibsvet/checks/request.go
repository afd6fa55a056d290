package checks

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A request is one that the checked program makes, as far as its arguments are constants.
type request struct {
	client, lock, call []dibs.Option // of each level
	kind               string        // Once, All, Semaphore for a check of its permits; all others are equal to Mutex
	name               string
	names              []string // of All
	permits, n         int      // of Semaphore and Acquire
	every              time.Duration
	try                bool
}

// newRequest returns a valid request: what is not known of the real one does not matter.
func newRequest() request {
	return request{kind: "Mutex", name: "…", permits: driver.Unlimited, n: 1, every: driver.MinTTL}
}

// The levels of options, beside that of the call.
func atClient(r *request, given []dibs.Option)    { r.client = given }
func atPrimitive(r *request, given []dibs.Option) { r.lock = given }

// ofOption returns a request with one option.
func ofOption(o dibs.Option) request {
	r := newRequest()
	r.call = []dibs.Option{o}
	return r
}

// err returns the ErrInvalid that the request returns, or nil. The request sends nothing,
// because its context has ended.
func (r request) err() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.send(ctx); errors.Is(err, dibs.ErrInvalid) {
		return err
	}
	return nil
}

func (r request) send(ctx context.Context) error {
	locks := dibs.New(memstore.New(), r.client...)
	mutex := locks.Mutex(r.name, r.lock...)
	switch {
	case r.kind == "Semaphore":
		return errorOf(locks.Semaphore(r.name, r.permits, r.lock...).Acquire(ctx, r.n, r.call...))
	case r.kind == "Once":
		nothing := func(context.Context) error { return nil }
		return errorOf(locks.Once(r.name, r.every, r.lock...).Do(ctx, nothing, r.call...))
	case r.kind == "All":
		return errorOf(locks.All(r.names...).Lock(ctx, r.call...))
	case r.try:
		return errorOf(mutex.TryLock(ctx, r.call...))
	default:
		return errorOf(mutex.Lock(ctx, r.call...))
	}
}

// errorOf returns the error of a request. There is no result beside it.
func errorOf[T any](_ T, err error) error { return err }
