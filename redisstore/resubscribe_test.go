package redisstore

import (
	"testing"
	"testing/synctest"
	"time"
)

// In a short outage a client subscribes often, in a long outage seldom. After an hour an idle
// client opens six connections a minute.
func TestResubscriptionPausesGrow(t *testing.T) {
	for name, c := range map[string]struct {
		busy          bool
		least, most   int // attempts in the first second
		later, later2 int // attempts in a minute after an hour
	}{
		"busy": {true, 10, 40, 60, 130},
		"idle": {false, 1, 2, 5, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newSubscribePauses()
			attempts := func(within time.Duration) (n int) {
				for end := time.Now().Add(within); time.Now().Before(end); n++ {
					r.ended(0)
					r.wait(t.Context(), func() bool { return c.busy })
				}
				return n
			}
			if n := attempts(time.Second); n < c.least || n > c.most {
				t.Errorf("%s: %d attempts in the first second, want %d to %d", name, n, c.least, c.most)
			}
			attempts(time.Hour)
			if n := attempts(time.Minute); n < c.later || n > c.later2 {
				t.Errorf("%s: %d attempts in a minute, want %d to %d", name, n, c.later, c.later2)
			}
			r.ended(lasting) // a successful subscription
			if pause := r.backoff.Next(time.Now()); pause > soonPause {
				t.Errorf("%s: pause of %v after a subscription that worked, want at most %v", name, pause, soonPause)
			}
		})
	}
}

// A client that becomes busy during a long pause should subscribe at once.
func TestBusyClientSubscribesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSubscribePauses()
		begin := time.Now()
		r.ended(0)
		r.wait(t.Context(), func() bool { return time.Since(begin) >= time.Second })
		if took := time.Since(begin); took > time.Second+idleCheck {
			t.Errorf("waited %v, and the client was busy after %v", took, time.Second)
		}
	})
}
