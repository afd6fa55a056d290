package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A server that is only slow, or refuses one request, keeps its bounds.
func TestClockIsKeptAfterRefusals(t *testing.T) {
	c := newClock()
	for _, err := range []error{nil, context.DeadlineExceeded, redisconn.ErrUnsent, redisconn.ServerError("WRONGTYPE"), redisconn.ServerError("OOM command not allowed")} {
		c.learn(time.Now(), time.Now(), now)
		c.observeError(err)
		if c.latest(time.Now()) == 0 {
			t.Errorf("forgotten for %v", err)
		}
	}
}

// Old bounds are not used as a guess.
func TestOldClockIsNoGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		c.learn(time.Now(), time.Now(), now)
		if c.guess(nil).latest(time.Now()) == 0 {
			t.Error("a fresh clock is no guess")
		}
		time.Sleep(maxBoundAge + time.Second)
		if c.guess(nil).latest(time.Now()) != 0 {
			t.Error("an old clock is a guess")
		}
	})
}
