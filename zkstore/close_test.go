package zkstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/zkstore"
)

// After Close, the store opens no connections, also if calls began at the same time.
func TestCloseDuringCalls(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	refuse := func(string, string, time.Duration) (net.Conn, error) {
		dials.Add(1)
		return nil, errRefused
	}
	for range 60 {
		s := zkstore.New([]string{"127.0.0.1:1"}, zkstore.Dial(refuse))
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				_, err := s.Acquire(ctx, request("n", "t", shortTTL))
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("%v, want ErrUnavailable", err)
				}
			})
		}
		time.Sleep(rand.N(300 * time.Microsecond))
		must(t, s.Close())
		calls.Wait()
	}
	time.Sleep(2 * time.Second) // the library tries again after a second
	before := dials.Load()
	time.Sleep(3 * time.Second)
	if after := dials.Load(); after != before {
		t.Errorf("%d connections were opened after Close", after-before)
	}
}
