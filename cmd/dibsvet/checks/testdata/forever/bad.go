// Package forever has calls that can wait for ever.
package forever

import (
	"context"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

var locks = dibs.New(memstore.New(), dibs.TTL(10*time.Second))

func nothing(context.Context) error { return nil }

func direct() error {
	return locks.Mutex("a").Do(context.Background(), nothing) // want `Do with a context that never ends can wait for ever: add dibs.Wait\(d\), or use a context with a deadline`
}

func todo() (*dibs.Lease, error) {
	return locks.Mutex("a").Lock(context.TODO(), dibs.TTL(time.Minute)) // want `Lock with a context that never ends`
}

func variable() error {
	ctx := context.Background()
	rw := locks.RWMutex("a")
	lease, err := rw.RLock(ctx) // want `RLock with a context that never ends`
	if err != nil {
		return err
	}
	return lease.Unlock()
}

type key struct{}

func withValue() (*dibs.Lease, error) {
	ctx := context.Background()
	ctx = context.WithValue(ctx, key{}, 1)
	return locks.Semaphore("a", 4).Acquire(ctx, 2) // want `Acquire with a context that never ends`
}

func withoutCancel(ctx context.Context) error {
	return locks.RWMutex("a").Reading().Do(context.WithoutCancel(ctx), nothing) // want `Do with a context that never ends`
}

func several() error {
	return locks.All("a", "b").Do(context.Background(), nothing) // want `Do with a context that never ends`
}

func call() (int, error) {
	return dibs.Call(context.Background(), locks.RWMutex("a").Reading(), func(context.Context) (int, error) { return 1, nil }) // want `dibs.Call with a context that never ends`
}

func localClient() error {
	c := dibs.New(memstore.New())
	defer c.Close()
	m := c.Mutex("a", dibs.Label("x"))
	return m.Do(context.Background(), nothing) // want `Do with a context that never ends`
}

type service struct{ locks *dibs.Client }

func newService() *service { return &service{locks: dibs.New(memstore.New())} }

func (s *service) run() error {
	return s.locks.Mutex("a").Do(context.Background(), nothing) // want `Do with a context that never ends`
}

func optionVariable() error {
	ttl := dibs.TTL(time.Minute)
	return locks.Mutex("a").Do(context.Background(), nothing, ttl) // want `Do with a context that never ends`
}

func nilOption() error {
	return locks.Mutex("a").Do(context.Background(), nothing, nil) // want `Do with a context that never ends`
}
