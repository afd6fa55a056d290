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

// optionErr returns the ErrInvalid of an option with a bad value, or nil. An option of one primitive
// is invalid in a call of another one, and valid in New.
func optionErr(o dibs.Option) error {
	ofCall, ofClient := newRequest(), newRequest()
	ofCall.call, ofClient.client = []dibs.Option{o}, []dibs.Option{o}
	err := ofCall.err()
	if err != nil && ofClient.err() == nil {
		return nil
	}
	return err
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
		return errorOf(locks.Semaphore(r.name, r.permits, r.lock...).Permits(r.n).TryLock(ctx, r.call...))
	case r.kind == "Semaphore":
		return errorOf(locks.Semaphore(r.name, r.permits, r.lock...).Permits(r.n).Lock(ctx, r.call...))
	case r.kind == "Once":
		nothing := func(context.Context) error { return nil }
		return locks.Once(r.name, r.every, r.lock...).Do(ctx, nothing, r.call...)
	case r.kind == "All" && r.try:
		return errorOf(locks.All(r.names, r.lock...).TryLock(ctx, r.call...))
	case r.kind == "All":
		return errorOf(locks.All(r.names, r.lock...).Lock(ctx, r.call...))
	case r.kind == "RWMutex" && r.try:
		return errorOf(locks.RWMutex(r.name, r.lock...).Writer().TryLock(ctx, r.call...))
	case r.kind == "RWMutex":
		return errorOf(locks.RWMutex(r.name, r.lock...).Writer().Lock(ctx, r.call...))
	case r.kind == "Election":
		return errorOf(locks.Election(r.name, r.lock...).Campaign(ctx, r.call...))
	case r.kind == "Yield":
		defer locks.Close()
		return mutex.Do(context.Background(), func(ctx context.Context) error { // in memory
			lease, err := dibs.LeaseOf(ctx, r.name)
			if err != nil {
				return err
			}
			return lease.Yield(ctx, r.call...)
		})
	case r.kind == "Attach":
		return errorOf(locks.Attach(ctx, dibs.NewHandle(r.name, "token"), r.call...))
	case r.try:
		return errorOf(mutex.TryLock(ctx, r.call...))
	default:
		return errorOf(mutex.Lock(ctx, r.call...))
	}
}

// errorOf returns a request's error. There is no result beside it.
func errorOf[T any](_ T, err error) error { return err }
