package outcome_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/observe/outcome"
)

func TestOfCall(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("job: %w", err) }
	for want, e := range map[string]dibs.AcquireEnd{
		"acquired":    {},
		"notified":    {Notified: true},
		"busy":        {Err: wrap(&dibs.BusyError{Name: "n"})},
		"timeout":     {Err: wrap(&dibs.BusyError{Name: "n", Cause: context.DeadlineExceeded})},
		"canceled":    {Err: wrap(&dibs.BusyError{Name: "n", Cause: errors.New("no more need")})},
		"unavailable": {Err: wrap(&dibs.UnavailableError{Op: "acquire", Cause: context.DeadlineExceeded})},
		"closed":      {Err: wrap(dibs.ErrClosed)},
		"wrong_type":  {Err: wrap(dibs.ErrWrongType)},
		"error":       {Err: wrap(dibs.ErrInvalid)},
	} {
		if have := outcome.OfCall(&e).String(); have != want {
			t.Errorf("%+v: %s, want %s", e, have, want)
		}
	}
	if have := outcome.OfError(context.DeadlineExceeded); have != outcome.Timeout {
		t.Errorf("a deadline before the call: %v", have)
	}
}

func TestOfRelease(t *testing.T) {
	lost := fmt.Errorf("job: %w", &dibs.LostError{Name: "n", Reason: dibs.ReasonMaxHold})
	for err, want := range map[error]string{nil: "released", dibs.ErrUnavailable: "unavailable", lost: "lost"} {
		if how, _ := outcome.OfRelease(err); how.String() != want {
			t.Errorf("%v: %v, want %s", err, how, want)
		}
	}
	if _, why := outcome.OfRelease(lost); why != outcome.MaxHold {
		t.Errorf("reason %v", why)
	}
}

func TestKindsAndReasonsHaveTheirWords(t *testing.T) {
	for _, k := range []dibs.Kind{
		dibs.KindMutex, dibs.KindReader, dibs.KindWriter, dibs.KindSemaphore,
		dibs.KindMulti, dibs.KindElection, dibs.KindOnce, dibs.KindAttached, "other",
	} {
		if have := outcome.OfKind(k).String(); have != string(k) {
			t.Errorf("kind %q is %q", k, have)
		}
	}
	for reason, want := range map[dibs.Reason]string{
		dibs.ReasonExpired: "expired", dibs.ReasonMissing: "missing", dibs.ReasonRevoked: "revoked",
		dibs.ReasonMaxHold: "max_hold", dibs.ReasonClosed: "closed",
	} {
		if have := outcome.OfReason(reason).String(); have != want {
			t.Errorf("reason %q is %q, want %q", reason, have, want)
		}
	}
}
