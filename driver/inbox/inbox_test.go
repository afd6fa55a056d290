package inbox_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
)

// Close waits for a delivery and for a goroutine that began. Later ones do not begin.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		enter, leave := make(chan struct{}), make(chan struct{})
		delivered := 0
		in := inbox.New(ctx, func(driver.Event) { close(enter); <-leave; delivered++ })
		ran := false
		in.Run(func() { <-in.Context.Done(); ran = true })
		go in.Send(driver.Event{Kind: driver.EventRetry})
		<-enter
		closed := make(chan struct{})
		go func() { in.Close(); close(closed) }()
		for _, end := range []func(){cancel, func() { close(leave) }} {
			synctest.Wait()
			select {
			case <-closed:
				t.Fatal("Close did not wait")
			default:
			}
			end()
		}
		<-closed
		in.Send(driver.Event{})
		in.Run(func() { t.Error("a goroutine began after Close") })
		synctest.Wait()
		if !ran || delivered != 1 {
			t.Errorf("the goroutine ended: %v; %d deliveries", ran, delivered)
		}
	})
}

// A Watch that ends does not remove the inbox of the client's next Watch.
func TestInboxes(t *testing.T) {
	var all inbox.Inboxes
	if all.Get("client") != nil {
		t.Error("there is an inbox before the first Watch")
	}
	first, second := inbox.New(t.Context(), nil), inbox.New(t.Context(), nil)
	all.Add("client", first)
	all.Add("client", second)
	all.Remove("client", first)
	if all.Get("client") != second {
		t.Error("the second inbox is gone")
	}
	all.Remove("client", second)
	if all.Get("client") != nil {
		t.Error("an inbox is left")
	}
}
