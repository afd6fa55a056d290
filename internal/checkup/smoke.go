package checkup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// stepTimeout bounds one step of the smoke test.
const stepTimeout = 2 * time.Second

// A Smoke is the result of a smoke test: nil for what works.
type Smoke struct {
	Lock   error // a lock on a random name was acquired, queued for, handed off and released
	Listen error // the client was connected to its notifications
	Grant  error // the waiter was notified of the hand-off
}

// TestLocking tests what settings and rights only suggest: that locks work. listens says that the
// store has notifications.
func TestLocking(ctx context.Context, s driver.Store, listens bool) Smoke {
	client := "doctor:" + rand.Text()
	request := func(n uint64) driver.AcquireRequest {
		return driver.AcquireRequest{
			Name: "dibs:doctor:" + client, Token: fmt.Sprintf("%s:%d", client, n), Client: client, Seq: n,
			TTL: driver.WaiterTTL, Weight: 1, Limit: 1, Queue: true,
		}
	}
	t := &smokeTest{ctx: ctx, store: s, listens: listens, holder: request(1), waiter: request(2), events: make(chan driver.Event, 16)}
	watching, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Watch(watching, client, func(event driver.Event) { // it ends with its context
			select {
			case t.events <- event:
			default:
			}
		})
	}()
	t.result.Lock = t.handOff()
	cancel()
	<-ended
	if t.result.Lock != nil {
		t.cleanUp()
	}
	return t.result
}

// A smokeTest acquires one lock, queues for it, and hands it off.
type smokeTest struct {
	ctx            context.Context
	store          driver.Store
	listens        bool
	holder, waiter driver.AcquireRequest
	events         chan driver.Event
	result         Smoke
}

// handOff runs the test, and returns the first error.
func (t *smokeTest) handOff() error {
	if t.listens {
		t.result.Listen = t.await(func(event driver.Event) (bool, error) { return event.Kind == driver.EventConnected, event.Err })
	}
	for _, step := range []func() error{
		func() error { return t.acquire(t.holder, true) },
		func() error { return t.acquire(t.waiter, false) },
		t.extend,
		func() error { return t.release(t.holder) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if t.listens && t.result.Listen == nil {
		t.result.Grant = t.await(func(event driver.Event) (bool, error) {
			return event.Kind == driver.EventGranted && event.Token == t.waiter.Token, nil
		})
	}
	if err := t.acquire(t.waiter, true); err != nil {
		return err
	}
	return t.release(t.waiter)
}

func (t *smokeTest) acquire(r driver.AcquireRequest, held bool) error {
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	defer cancel()
	answer, err := t.store.Acquire(ctx, r)
	if err == nil && answer.Held != held {
		err = fmt.Errorf("acquire returned Held = %v instead of %v", answer.Held, held)
	}
	return err
}

func (t *smokeTest) extend() error {
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	defer cancel()
	r := t.holder
	return t.store.Extend(ctx, []driver.ExtendRequest{{Name: r.Name, Token: r.Token, Client: r.Client, TTL: r.TTL}})[0]
}

func (t *smokeTest) release(r driver.AcquireRequest) error {
	ctx, cancel := context.WithTimeout(t.ctx, stepTimeout)
	defer cancel()
	held, err := t.store.Release(ctx, driver.ReleaseRequest{Name: r.Name, Token: r.Token})
	if err == nil && !held {
		err = errors.New("the lock was lost right after it was acquired")
	}
	return err
}

// cleanUp cancels the requests, also when ctx has ended. Otherwise they expire.
func (t *smokeTest) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), stepTimeout)
	defer cancel()
	_ = t.store.Cancel(ctx, t.waiter)
	_ = t.store.Cancel(ctx, t.holder)
}

// await waits for an event, and returns why it did not arrive.
func (t *smokeTest) await(is func(driver.Event) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(t.ctx, stepTimeout, fmt.Errorf("nothing within %v", stepTimeout))
	defer cancel()
	for {
		select {
		case event := <-t.events:
			if ok, err := is(event); ok || err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
