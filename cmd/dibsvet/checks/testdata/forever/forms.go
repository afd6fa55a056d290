package forever

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// The forms in which programs make contexts.

var background = context.Background()

func packageVariable() error {
	return locks.Mutex("a").Do(background, nothing) // want `Do with a context that never ends`
}

func inGoroutine() {
	go func() { _ = locks.Mutex("a").Do(context.Background(), nothing) }() // want `Do with a context that never ends`
}

func inGroup(group *sync.WaitGroup, names []string) {
	for _, name := range names {
		group.Go(func() {
			lease, err := locks.Mutex(name).Lock(context.Background()) // want `Lock with a context that never ends`
			if err == nil {
				defer lease.Unlock()
			}
		})
	}
}

func inLoop(names []string) (err error) {
	ctx := context.WithValue(context.Background(), key{}, "job")
	for _, name := range names {
		err = errors.Join(err, locks.Mutex(name).Do(ctx, nothing)) // want `Do with a context that never ends`
	}
	return err
}

func deferred() {
	defer locks.Mutex("a").Do(context.TODO(), nothing) // want `Do with a context that never ends`
}

func methodValue() error {
	do := locks.Mutex("a").Do
	return do(context.Background(), nothing) // want `Do with a context that never ends`
}

// The context ends, or the call has a limit.

func timeout() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return locks.Mutex("a").Do(ctx, nothing)
}

func cancelled() error {
	ctx, cancel := context.WithCancel(background)
	time.AfterFunc(time.Minute, cancel)
	return locks.Mutex("a").Do(ctx, nothing)
}

func lockWaits() error {
	m := locks.Mutex("a", dibs.Wait(time.Minute))
	return m.Do(context.Background(), nothing)
}

func conditional(limit time.Duration) error {
	ctx := context.Background()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return locks.Mutex("a").Do(ctx, nothing)
}

func optionsOfCaller(options []dibs.Option) error {
	c := dibs.New(memstore.New(), options...)
	defer c.Close()
	return c.Mutex("a").Do(context.Background(), nothing)
}
