package dibs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

func TestRetry(t *testing.T) {
	unavailable := &UnavailableError{Op: "acquire", Cause: errors.New("connection reset")}
	for name, test := range map[string]struct {
		takes time.Duration // each attempt
		fails int           // the number of failures before the last error
		last  error
		want  error
		tries int
	}{
		"success":           {tries: 1},
		"after failures":    {fails: 3, tries: 4},
		"lost":              {last: ErrLost, want: ErrLost, tries: 1},
		"refused":           {fails: 1, last: &UnavailableError{Refused: true}, want: ErrUnavailable, tries: 2},
		"invalid":           {last: ErrInvalid, want: ErrInvalid, tries: 1},
		"too slow":          {takes: 600 * time.Millisecond, fails: 9, want: ErrUnavailable, tries: 2},
		"no time for a try": {takes: 999 * time.Millisecond, fails: 9, want: ErrUnavailable, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(alwaysGrants{})
				begin, tries := time.Now(), 0
				err := c.retry(t.Context(), begin.Add(time.Second), func(a attempt) error {
					tries++
					if a.sent != c.clock.Now() || !a.until.After(time.Now()) || a.until.After(begin.Add(time.Second)) {
						t.Errorf("attempt %d: sent %v, until %v", tries, a.sent, a.until)
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

// The deadline of the caller's context limits an attempt, and its end the retries.
func TestRetryEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(alwaysGrants{})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := c.retry(ctx, begin.Add(time.Hour), func(a attempt) error {
			if a.until.After(begin.Add(100 * time.Millisecond)) {
				t.Errorf("an attempt until %v", a.until.Sub(begin))
			}
			return &UnavailableError{Op: "acquire"}
		})
		if took := time.Since(begin); took != 100*time.Millisecond || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v after %v, want ErrUnavailable after 100ms", err, took)
		}
	})
}

// A retry that got room shortly before its end is not sent: its answer would be late.
func TestRetryThatWaitedTooLongIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tries := New(alwaysGrants{}), 0
		sent, units := c.gate.Try(load.Retry, 1<<20, 0) // all that there may be
		if units == 0 {
			t.Fatal("no room")
		}
		time.AfterFunc(240*time.Millisecond, func() { c.gate.End(&sent, load.Answered) })
		cause := &UnavailableError{Op: "acquire", Unsent: true, Cause: errors.New("others were in front")}
		begin := time.Now()
		err := c.retry(t.Context(), begin.Add(300*time.Millisecond), func(attempt) error {
			tries++
			return cause
		})
		if tries != 1 || !errors.Is(err, cause) {
			t.Errorf("%d tries, %v; want 1", tries, err)
		}
		if _, units := c.gate.Try(load.Retry, 1, 0); units == 0 {
			t.Error("the retry that was not sent takes room")
		}
	})
}

// No attempt begins with almost no time: it would hide the cause behind its own timeout.
func TestRetryLeavesTimeForTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tries := New(alwaysGrants{}), 0
		cause := &UnavailableError{Op: "acquire", Cause: errors.New("connection reset")}
		err := c.retry(t.Context(), time.Now().Add(10*time.Millisecond), func(attempt) error { // at 0, 1 and 3 ms
			tries++
			return cause
		})
		if tries != 3 || !errors.Is(err, cause) {
			t.Errorf("%d tries, %v; want 3", tries, err)
		}
	})
}
