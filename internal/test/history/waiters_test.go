package history_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
)

// A queueOnly is a store in which everybody waits. It passes events on.
type queueOnly struct {
	driver.Store
	events []driver.Event
}

func (s *queueOnly) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{Ticket: 1}, nil
}

func (s *queueOnly) Watch(_ context.Context, _ string, busy func() bool, on func(driver.Event)) error {
	for _, e := range s.events {
		on(e)
	}
	return nil
}

// A waiter may be passed over only for the reasons in docs/guarantees.md.
func TestWaiters(t *testing.T) {
	connected, broken := driver.Event{Kind: driver.EventConnected}, driver.Event{Kind: driver.EventDisconnected}
	for what, c := range map[string]struct {
		before, after []driver.Event // the first request
		late          bool
		pause         time.Duration // between two requests
		want          bool
	}{
		"a waiter":                 {before: []driver.Event{connected}},
		"with heartbeats":          {before: []driver.Event{connected}, pause: driver.WaiterTTL - 1},
		"silent":                   {before: []driver.Event{connected}, pause: driver.WaiterTTL, want: true},
		"late":                     {before: []driver.Event{connected}, late: true, want: true},
		"not subscribed":           {after: []driver.Event{connected}, want: true},
		"its subscription breaks":  {before: []driver.Event{connected}, after: []driver.Event{broken, connected}, want: true},
		"the store cannot connect": {before: []driver.Event{broken, connected}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(queueOnly)
				w := history.NewWaiters(store)
				watch := func(events []driver.Event) {
					store.events = events
					_ = w.Watch(t.Context(), "client", nil, func(driver.Event) {})
				}
				watch(c.before)
				request := driver.AcquireRequest{Token: "token", Client: "client", Queue: true, Late: c.late}
				for range 2 {
					reply, err := w.Acquire(t.Context(), request)
					if err != nil {
						t.Fatal(err)
					}
					request.Ticket = reply.Ticket
					time.Sleep(c.pause)
				}
				watch(c.after)
				if have := w.MayPassOver("token"); have != c.want {
					t.Errorf("may pass over: %v, want %v", have, c.want)
				}
				if w.MayPassOver("another") {
					t.Error("it may pass over a token that never waited")
				}
			})
		})
	}
}
