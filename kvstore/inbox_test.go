package kvstore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// events watches client c until the test ends, and returns its events.
func events(t *testing.T, s *kvstore.Store) <-chan driver.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	received := make(chan driver.Event, 1000)
	ended := make(chan error)
	go func() {
		ended <- s.Watch(ctx, "c", nil, func(e driver.Event) {
			select {
			case received <- e:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return received
}

// kinds returns the kinds of the received events.
func kinds(events <-chan driver.Event) (kinds []driver.EventKind) {
	synctest.Wait()
	for {
		select {
		case e := <-events:
			kinds = append(kinds, e.Kind)
		default:
			return kinds
		}
	}
}

// A deleted inbox begins again, even if the clock was set back since.
func TestNewInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		s := kvstore.New(b)
		received := events(t, s)
		if have := kinds(received); len(have) != 1 || have[0] != driver.EventConnected {
			t.Fatalf("events %v, want connected", have)
		}
		for range 2 {
			handOff(t, s, "n")
			if have := kinds(received); len(have) != 1 || have[0] != driver.EventGranted {
				t.Errorf("events %v, want granted", have)
			}
			v, err := b.Get(t.Context(), "inbox.c")
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Swap(t.Context(), "inbox.c", nil, v.Revision); err != nil {
				t.Fatal(err)
			}
			b.setBack(time.Hour)
		}
	})
}

// A bucket whose inboxes cannot be read.
type unreadable struct{ *memory }

var errRead = errors.New("no right to read")

func (u *unreadable) Get(ctx context.Context, key string) (kvstore.Value, error) {
	if strings.HasPrefix(key, "inbox.") {
		return kvstore.Value{}, errRead
	}
	return u.memory.Get(ctx, key)
}

// A read error should be the cause of a lost connection.
func TestUnreadableInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		received := events(t, kvstore.New(&unreadable{memory: newMemory()}))
		if e := <-received; e.Kind != driver.EventDisconnected || !errors.Is(e.Err, errRead) {
			t.Errorf("%+v, want the error of the read", e)
		}
	})
}

// A bucket whose watches end after their first call.
type shortWatches struct {
	*memory
	watches atomic.Int64
}

var errWatch = errors.New("the watch has ended")

func (s *shortWatches) Watch(_ context.Context, _ string, on func()) error {
	s.watches.Add(1)
	on()
	time.Sleep(time.Millisecond)
	return errWatch
}

// Watches that end soon must be started again with growing pauses.
func TestShortWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &shortWatches{memory: newMemory()}
		received := events(t, kvstore.New(b))
		time.Sleep(time.Minute)
		if n := b.watches.Load(); n > 300 {
			t.Errorf("%d watches in a minute", n)
		}
		<-received // connected
		if e := <-received; e.Kind != driver.EventDisconnected || !errors.Is(e.Err, errWatch) {
			t.Errorf("%+v, want the error of the watch", e)
		}
	})
}

// If Watch returns nil too soon, the error reports it.
func TestWatchReturnsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		received := events(t, kvstore.New(&broken{memory: newMemory(), watch: returnAtOnce}))
		e := <-received
		if e.Kind != driver.EventDisconnected || e.Err == nil || !strings.Contains(e.Err.Error(), "returned nil before its context ended") {
			t.Errorf("%+v, want an error that says what Watch did", e)
		}
	})
}
