package acquire

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
)

// A Grant is a held lock, as granted by the store.
type Grant struct {
	Request    driver.AcquireRequest
	Fence      uint64
	FirstFence uint64        // the grant's fences run from FirstFence to Fence
	Sent       time.Duration // the TTL began then or later, on the client's clock
	TTL        time.Duration // as requested, or shorter after a hand-off
	Notified   bool          // it came from a hand-off, with a notification
	Handoff    time.Duration // how long ago the hand-off was requested; zero if unknown
	Unanswered time.Time     // an unanswered try may arrive until then; or zero
}

// Why says how a call ended.
type Why uint8

// Ends of a call.
const (
	Granted Why = iota
	NotSent     // the context ended before the first request
	Busy        // the waiting is over
	Failed      // the store failed, or rejected the request
	Closed      // the client was closed
	again       // the next request is due; no caller sees it
)

// An Outcome says how a call ended. The zero Outcome belongs to a grant.
type Outcome struct {
	Why     Why
	Reply   driver.AcquireReply // the last reply
	Replied bool                // there was a reply
	Err     error               // for Failed
	Unknown bool                // for Failed: a request without an answer may have arrived
	Cause   error               // why the context ended; nil if it did not
}

// MayRetry reports whether another attempt may succeed.
func (o Outcome) MayRetry() bool {
	return o.Why == Busy || o.Why == Failed && !answer.IsRefusal(o.Err) && !answer.IsPermanent(o.Err)
}

// Ended returns the outcome for a call whose context ended before another attempt, or whose client
// ended if ctx is valid.
func (o Outcome) Ended(ctx context.Context, name string) Outcome {
	if ctx.Err() == nil {
		return Outcome{Why: Closed}
	}
	return o.withCause(cause(ctx), name)
}

// withCause adds the reason why the context ended to an outcome, or replaces an error that only
// reports this end.
func (o Outcome) withCause(ended error, name string) Outcome {
	switch {
	case ended == nil:
		return o
	case o.Why == Busy || o.MayRetry() && o.Replied:
		return Outcome{Why: Busy, Reply: o.Reply, Replied: o.Replied, Cause: ended}
	case o.MayRetry() && !errors.Is(o.Err, ended):
		o.Err = &driver.UnavailableError{Op: "acquire", Name: name, Cause: errors.Join(ended, answer.Cause(o.Err))}
	}
	return o
}

func cause(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}
