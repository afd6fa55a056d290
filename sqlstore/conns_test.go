package sqlstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A fakeConn is a connection in a network.
type fakeConn struct{ ended atomic.Bool }

// A network opens connections.
type network struct {
	opened, shut atomic.Int64
	delay        time.Duration // for each opening
	silent       atomic.Bool   // an opening hangs
	refuses      atomic.Bool
}

var errRefused = errors.New("refused")

func (n *network) open(ctx context.Context) (*fakeConn, error) {
	n.opened.Add(1)
	if n.refuses.Load() {
		return nil, errRefused
	}
	if n.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(n.delay) // virtual
	return new(fakeConn), nil
}

func (n *network) conns(most int) *Conns[*fakeConn] {
	return NewConns(most, n.open, func(c *fakeConn) bool { return c.ended.Load() }, func(*fakeConn) { n.shut.Add(1) })
}

// within uses a connection for some time, or until it must end.
func within(c *Conns[*fakeConn], limit time.Duration, urgent bool, hold time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.Use(ctx, urgent, func(conn *fakeConn) error {
		select {
		case <-time.After(hold):
			return nil
		case <-ctx.Done():
			conn.ended.Store(true)
			return ctx.Err()
		}
	})
}

// As many connections as permitted are opened, and another for urgent requests. All close when
// idle.
func TestConnsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		c := n.conns(4)
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				if err := within(c, time.Minute, false, 10*time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		if err := within(c, time.Minute, true, 0); err != nil || time.Since(begin) != 0 {
			t.Errorf("an urgent request: %v after %v", err, time.Since(begin))
		}
		group.Wait()
		if took := time.Since(begin); took != 2500*time.Millisecond {
			t.Errorf("1,000 requests of 10 ms on 4 connections took %v", took)
		}
		if n.opened.Load() != 5 {
			t.Errorf("%d connections were opened, want 5", n.opened.Load())
		}
		time.Sleep(2 * idleTime) // virtual
		synctest.Wait()
		if n.shut.Load() != 5 {
			t.Errorf("%d connections were closed, want 5", n.shut.Load())
		}
	})
}

// Hanging requests, and connections that do not open, keep no place. A moment after the network
// is back, requests succeed. Few connections are opened meanwhile.
func TestConnsOutliveSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		c := n.conns(4)
		var group sync.WaitGroup
		for range 5 { // renewals without an answer
			group.Go(func() { _ = within(c, time.Hour, true, time.Hour) })
		}
		synctest.Wait()
		n.silent.Store(true)
		const outage = 30 * time.Second
		for end := time.Now().Add(outage); time.Now().Before(end); {
			var unsent *UnsentError
			if err := within(c, time.Second, false, 0); !errors.As(err, &unsent) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("without a network: %v", err)
			}
		}
		if most := int64(outage/time.Second) + 10; n.opened.Load() > most {
			t.Errorf("%d connections were opened in %v, want at most %d", n.opened.Load(), outage, most)
		}
		n.silent.Store(false)
		begin := time.Now()
		if err := within(c, 2*time.Second, false, 0); err != nil {
			t.Errorf("%v after the network is back: %v", time.Since(begin), err)
		}
		time.Sleep(2 * time.Hour) // virtual
		group.Wait()
	})
}

// A request can end before its connection is open. The next request gets it.
func TestConnsOpenForLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := network{delay: 3 * time.Second}
		c := n.conns(4)
		failed := 0
		for within(c, 400*time.Millisecond, false, 0) != nil {
			failed++
		}
		if failed != 7 {
			t.Errorf("%d requests have failed within the 3 s, want 7", failed)
		}
		time.Sleep(time.Minute) // virtual
	})
}

// A refusal ends the requests at once, unless a connection works.
func TestConnsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		c := n.conns(2)
		n.refuses.Store(true)
		if err := within(c, time.Minute, false, 0); !errors.Is(err, errRefused) {
			t.Errorf("got %v, want the refusal", err)
		}
		n.refuses.Store(false)
		var group sync.WaitGroup
		group.Go(func() { _ = within(c, time.Minute, false, 100*time.Millisecond) })
		synctest.Wait()
		n.refuses.Store(true)
		if err := within(c, time.Minute, false, 0); err != nil {
			t.Errorf("while another connection works: %v", err)
		}
		group.Wait()
		time.Sleep(time.Minute) // virtual
	})
}

// The error for an unsent request should say whether the store was reached.
func TestConnsUnreached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n network
		n.silent.Store(true)
		err := within(n.conns(1), time.Second, false, 0)
		var u *driver.UnavailableError
		if errors.As(Unavailable("acquire", "n", err, err, false), &u); !u.Unsent || !u.Unreached {
			t.Errorf("got %+v", u)
		}
		time.Sleep(time.Minute) // virtual
	})
}
