package checkup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Trial tests that locks work: settings and rights can only suggest it. It acquires a lock,
// queues for it, and hands it off.
type Trial struct {
	Store   driver.Store
	Name    string        // the lock's name; empty for a random name
	Replies time.Duration // how much longer than 2 s a request may take

	Silent  bool                // hand-offs are known not to be notified
	Watched func(client string) // called when Watch is connected; may be nil

	// Watch is the store's Watch, or nil without notifications.
	Watch func(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error
}

// A Result contains a trial's errors; nil means that this part works.
type Result struct {
	Lock   error // the lock was acquired, queued for, handed off and released
	Listen error // the client was connected to its notifications
	Grant  error // the waiter was notified of the hand-off
}

// patience bounds a trial's step.
const patience = 2 * time.Second

// Run runs the trial. Nothing is left behind, except after an error: then the lock expires soon.
func (t Trial) Run(ctx context.Context) Result {
	client := "doctor:0:" + rand.Text()
	if t.Name == "" {
		t.Name = "dibs:doctor:" + client
	}
	request := func(n uint64) driver.AcquireRequest {
		return driver.AcquireRequest{
			Name: t.Name, Token: fmt.Sprintf("%s:%d", client, n), Client: client, Seq: n,
			TTL: driver.WaiterTTL, Weight: 1, Limit: 1, Queue: true,
		}
	}
	r := &trialRun{Trial: t, ctx: ctx, holder: request(1), waiter: request(2), events: make(chan driver.Event, 16)}
	watching, cancel := context.WithCancel(ctx)
	if t.Watch != nil {
		go r.watch(watching, client)
	}
	r.result.Lock = r.handOff()
	cancel()
	if r.result.Lock != nil {
		r.cleanUp()
	}
	return r.result
}

type trialRun struct {
	Trial

	ctx            context.Context
	holder, waiter driver.AcquireRequest
	events         chan driver.Event
	result         Result
}

// watch collects events until ctx ends, and at last why there are no more.
func (r *trialRun) watch(ctx context.Context, client string) {
	on := func(event driver.Event) {
		select {
		case r.events <- event:
		default:
		}
	}
	if err := r.Watch(ctx, client, nil, on); ctx.Err() == nil {
		on(driver.Event{Kind: driver.EventDisconnected, Err: fmt.Errorf("the subscription ended: %w", err)})
	}
}

// handOff runs the steps, and returns the first error.
func (r *trialRun) handOff() error {
	if r.Watch != nil {
		r.result.Listen = r.await(func(event driver.Event) bool { return event.Kind == driver.EventConnected })
		if r.Watched != nil && r.result.Listen == nil {
			r.Watched(r.holder.Client)
		}
	}
	err := r.steps(r.acquire(r.holder, true), r.acquire(r.waiter, false), r.extend, r.release(r.holder))
	if err != nil {
		return err
	}
	if r.Watch != nil && r.result.Listen == nil && !r.Silent {
		r.result.Grant = r.await(func(event driver.Event) bool {
			return event.Kind == driver.EventGranted && event.Token == r.waiter.Token
		})
	}
	return r.steps(r.acquire(r.waiter, true), r.release(r.waiter))
}

// A step sends a single request.
type step func(context.Context) error

func (r *trialRun) steps(all ...step) error {
	for _, send := range all {
		ctx, cancel := context.WithTimeout(r.ctx, patience+r.Replies)
		err := send(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *trialRun) acquire(request driver.AcquireRequest, held bool) step {
	return func(ctx context.Context) error {
		answer, err := r.Store.Acquire(ctx, request)
		if err == nil && answer.Held != held {
			err = fmt.Errorf("acquire returned Held = %v instead of %v", answer.Held, held)
		}
		return err
	}
}

func (r *trialRun) extend(ctx context.Context) error {
	request := r.holder
	return r.Store.Extend(ctx, []driver.ExtendRequest{{Name: request.Name, Token: request.Token, Client: request.Client, TTL: request.TTL}})[0]
}

func (r *trialRun) release(request driver.AcquireRequest) step {
	return func(ctx context.Context) error {
		held, err := r.Store.Release(ctx, driver.ReleaseRequest{Name: request.Name, Token: request.Token})
		if err == nil && !held {
			err = errors.New("the lock was lost right after it was acquired")
		}
		return err
	}
}

// cleanUp cancels the requests, even after the context's end. Otherwise they expire.
func (r *trialRun) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), patience+r.Replies)
	defer cancel()
	_ = r.Store.Cancel(ctx, r.waiter)
	_ = r.Store.Cancel(ctx, r.holder)
}

// await waits for an event, and returns why it did not arrive.
func (r *trialRun) await(is func(driver.Event) bool) error {
	ctx, cancel := context.WithTimeoutCause(r.ctx, patience, fmt.Errorf("no message within %v", patience))
	defer cancel()
	for {
		select {
		case event := <-r.events:
			if event.Err != nil || is(event) {
				return event.Err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
