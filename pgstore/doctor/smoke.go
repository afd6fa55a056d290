package doctor

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

// A smokeTest acquires one lock, queues for it, and hands it off.
type smokeTest struct {
	*examination
	holder, waiter driver.AcquireRequest
	events         chan driver.Event
}

// checkLocking tests what settings and rights only suggest: that locks work.
func (e *examination) checkLocking() {
	if e.unusable || e.ctx.Err() != nil {
		return
	}
	client := "doctor:" + rand.Text()
	request := func(n uint64) driver.AcquireRequest {
		return driver.AcquireRequest{
			Name: "dibs:doctor:" + client, Token: fmt.Sprintf("%s:%d", client, n), Client: client, Seq: n,
			TTL: driver.WaiterTTL, Weight: 1, Limit: 1, Queue: true,
		}
	}
	t := &smokeTest{examination: e, holder: request(1), waiter: request(2), events: make(chan driver.Event, 16)}
	ctx, cancel := context.WithCancel(e.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.store.Watch(ctx, client, func(event driver.Event) { // it ends with ctx
			select {
			case t.events <- event:
			default:
			}
		})
	}()
	err := t.handOff()
	cancel()
	<-ended
	if err == nil {
		return
	}
	t.cleanUp()
	if e.ctx.Err() == nil {
		e.find(driver.Critical, "lock", "a lock on a random name failed: "+err.Error(), "other locks will fail too", "see the other findings and the error")
	}
}

// handOff runs the test, and returns the first error.
func (t *smokeTest) handOff() error {
	listens := !t.target.Poll && t.awaitConnected()
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
	if listens {
		t.awaitGrant()
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

const late = "waiters are not notified: they retry, so a hand-off takes longer"

// awaitConnected waits until the connection listens.
func (t *smokeTest) awaitConnected() bool {
	err := t.await(func(event driver.Event) (bool, error) { return event.Kind == driver.EventConnected, event.Err })
	t.addAll(candidate{err != nil && t.ctx.Err() == nil, driver.Warning, "notifications", fmt.Sprintf("LISTEN failed: %v", err), late,
		"let this user open one more connection for each client; or use the option Poll"})
	return err == nil
}

// awaitGrant waits for the notification of the waiter's grant.
func (t *smokeTest) awaitGrant() {
	err := t.await(func(event driver.Event) (bool, error) {
		return event.Kind == driver.EventGranted && event.Token == t.waiter.Token, nil
	})
	t.addAll(candidate{err != nil && t.ctx.Err() == nil, driver.Warning, "notifications", fmt.Sprintf("no notification of a hand-off: %v", err), late,
		"connect to the server itself, not to a pooler in transaction mode; or use the option Poll"})
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
