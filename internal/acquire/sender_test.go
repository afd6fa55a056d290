package acquire

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/dibslock/dibs/internal/load"
)

func newSender() *Sender {
	c := bootclock.New()
	return &Sender{Clock: c, Gate: load.NewGate(c.Now, func() {})}
}

func TestRetry(t *testing.T) {
	unavailable := &driver.UnavailableError{Op: "acquire", Cause: errors.New("connection reset")}
	for name, test := range map[string]struct {
		takes time.Duration // each attempt
		fails int           // number of failures before the last error
		last  error
		want  error
		tries int
	}{
		"success":           {tries: 1},
		"after failures":    {fails: 3, tries: 4},
		"lost":              {last: driver.ErrLost, want: driver.ErrLost, tries: 1},
		"refused":           {fails: 1, last: &driver.UnavailableError{Refused: true}, want: driver.ErrUnavailable, tries: 2},
		"invalid":           {last: driver.ErrInvalid, want: driver.ErrInvalid, tries: 1},
		"too slow":          {takes: 600 * time.Millisecond, fails: 9, want: driver.ErrUnavailable, tries: 2},
		"no time for a try": {takes: 999 * time.Millisecond, fails: 9, want: driver.ErrUnavailable, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSender()
				begin, tries := time.Now(), 0
				err := s.Retry(t.Context(), begin.Add(time.Second), func(a Attempt) error {
					tries++
					if a.Sent != s.Clock.Now() || !a.Until.After(time.Now()) || a.Until.After(begin.Add(time.Second)) {
						t.Errorf("attempt %d: sent %v, until %v", tries, a.Sent, a.Until)
					}
					time.Sleep(test.takes)
					if tries <= test.fails {
						return unavailable
					}
					return test.last
				})
				if tries != test.tries || !errors.Is(err, test.want) {
					t.Errorf("%d tries, error %v; want %d, %v", tries, err, test.tries, test.want)
				}
			})
		})
	}
}

// The deadline of the caller's context must limit an attempt, and its end must stop the retries.
func TestRetryEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := s.Retry(ctx, begin.Add(time.Hour), func(a Attempt) error {
			if a.Until.After(begin.Add(100 * time.Millisecond)) {
				t.Errorf("an attempt until %v", a.Until.Sub(begin))
			}
			return &driver.UnavailableError{Op: "acquire"}
		})
		if took := time.Since(begin); took != 100*time.Millisecond || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v after %v, want ErrUnavailable after 100ms", err, took)
		}
	})
}

// A retry that got room shortly before its end is not sent: its answer would be late.
func TestRetryThatWaitedTooLongIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tries := newSender(), 0
		sent, units := s.Gate.Try(load.Retry, 1<<20, 0) // all available units
		if units == 0 {
			t.Fatal("no room")
		}
		time.AfterFunc(240*time.Millisecond, func() { s.Gate.End(&sent, load.Answered) })
		cause := &driver.UnavailableError{Op: "acquire", Unsent: true, Cause: errors.New("others were in front")}
		begin := time.Now()
		err := s.Retry(t.Context(), begin.Add(300*time.Millisecond), func(Attempt) error {
			tries++
			return cause
		})
		if tries != 1 || !errors.Is(err, cause) {
			t.Errorf("%d tries, %v; want 1", tries, err)
		}
		if _, units := s.Gate.Try(load.Retry, 1, 0); units == 0 {
			t.Error("the retry that was not sent takes room")
		}
	})
}

// No attempt begins with almost no time: it would hide the cause behind its own timeout.
func TestRetryLeavesTimeForTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tries := newSender(), 0
		cause := &driver.UnavailableError{Op: "acquire", Cause: errors.New("connection reset")}
		err := s.Retry(t.Context(), time.Now().Add(10*time.Millisecond), func(Attempt) error { // at 0, 1 and 3 ms
			tries++
			return cause
		})
		if tries != 3 || !errors.Is(err, cause) {
			t.Errorf("%d tries, %v; want 3", tries, err)
		}
	})
}
