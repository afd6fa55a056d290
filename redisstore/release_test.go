package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A release is sent twice if its first try has no reply in time. A token that nobody uses
// again needs no time after which the first try is void. The first may have released the
// name. Then the second finds it free, or is refused, and the outcome is unknown.
func TestReleaseIsRetried(t *testing.T) {
	for _, test := range []struct {
		second   any
		released bool
		err      string
	}{
		{int64(1), true, ""},
		{int64(0), false, "outcome unknown"},
		{ServerError("OOM command not allowed"), false, "outcome unknown"},
	} {
		t.Run(fmt.Sprint(test.second), func(t *testing.T) {
			c := &fakeConn{prompt: true, exchanges: make(chan *exchange, 100)}
			s := New(c, Prompt())
			r := &fixture{t, s.slots.single().pipeliner, c}
			release := func() chan error {
				done := make(chan error, 1)
				go func() {
					released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "token", Until: time.Now().Add(generous), TokenEnds: true})
					if err == nil && released != test.released {
						err = fmt.Errorf("released %v", released)
					}
					done <- err
				}()
				return done
			}
			fast := func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.fast && r.singles >= minSingles
			}
			for end := time.Now().Add(generous); !fast(); { // only a fast server's requests are sent again
				if time.Now().After(end) {
					t.Skip("SKIPPED: the machine is too busy for a server to seem quick")
				}
				done := release()
				r.sent().answer <- []Reply{{Value: int64(1)}}
				<-done
			}
			r.eventually("the workers end", func() bool { return r.workers == 0 })
			done := release()
			r.sent() // no reply
			r.sent().reply(test.second)
			err := <-done
			var unavailable *dibs.UnavailableError
			if test.err == "" && err != nil || test.err != "" && (!errors.As(err, &unavailable) || unavailable.Refused || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v, want %q", err, test.err)
			}
		})
	}
}
