package checks

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// A request is the checked program's request, as far as its arguments are constants.
type request struct {
	client, lock, call []dibs.Option // for each level
	kind               string        // the method of Client: Mutex, Once, All, Attach and so on
	name               string
	names              []string // for All
	permits, n         int      // for Semaphore and Acquire
	every              time.Duration
	try                bool
}

// newRequest returns a valid request: unknown parts of the real request do not matter.
func newRequest() request {
	return request{kind: "Mutex", name: "…", names: []string{"…"}, permits: driver.Unlimited, n: 1, every: driver.MinTTL}
}

// The options' levels.
func atClient(r *request, given []dibs.Option)    { r.client = given }
func atPrimitive(r *request, given []dibs.Option) { r.lock = given }
func atCall(r *request, given []dibs.Option)      { r.call = given }

// ofOption returns a request with one option.
func ofOption(o dibs.Option) request {
	r := newRequest()
	r.call = []dibs.Option{o}
	return r
}

// err returns the request's ErrInvalid, or nil. The request sends nothing, because its context is
// done.
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
	case r.kind == "Semaphore" && r.try:
		return errorOf(locks.Semaphore(r.name, r.permits, r.lock...).TryAcquire(ctx, r.n, r.call...))
	case r.kind == "Semaphore":
		return errorOf(locks.Semaphore(r.name, r.permits, r.lock...).Acquire(ctx, r.n, r.call...))
	case r.kind == "Once":
		nothing := func(context.Context) error { return nil }
		return errorOf(locks.Once(r.name, r.every, r.lock...).Do(ctx, nothing, r.call...))
	case r.kind == "All" && r.try:
		return errorOf(locks.All(r.names...).TryLock(ctx, r.call...))
	case r.kind == "All":
		return errorOf(locks.All(r.names...).Lock(ctx, r.call...))
	case r.kind == "RWMutex" && r.try:
		return errorOf(locks.RWMutex(r.name, r.lock...).TryLock(ctx, r.call...))
	case r.kind == "RWMutex":
		return errorOf(locks.RWMutex(r.name, r.lock...).Lock(ctx, r.call...))
	case r.kind == "Election":
		return errorOf(locks.Election(r.name, r.lock...).Campaign(ctx, r.call...))
	case r.kind == "Attach":
		return errorOf(locks.Attach(r.name, "token", r.call...))
	case r.try:
		return errorOf(mutex.TryLock(ctx, r.call...))
	default:
		return errorOf(mutex.Lock(ctx, r.call...))
	}
}

// errorOf returns a request's error. There is no result beside it.
func errorOf[T any](_ T, err error) error { return err }
