package acquire

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/answer"
)

// A Grant is a held lock, as the store has granted it.
type Grant struct {
	Request    driver.AcquireRequest
	Fence      uint64
	FirstFence uint64        // of those that belong to the grant: all from FirstFence to Fence
	Sent       time.Duration // its TTL began then or later, in the time of the client's clock
	TTL        time.Duration // of the request, or shorter after a hand-off
	Notified   bool          // it came from a hand-off, with a notification
	Handoff    time.Duration // how long ago that was requested; zero if unknown
	Unanswered time.Time     // a try of the request without an answer may arrive until then; or zero
}

// Why says how a call has ended.
type Why uint8

// Ends of a call.
const (
	Granted Why = iota
	NotSent     // the context ended before the first request
	Busy        // the waiting is over
	Failed      // the store has failed, or rejected the request
	Closed      // the client was closed
	again       // the next request is due; no caller sees it
)

// An Outcome is how a call has ended. The zero Outcome is that of a grant.
type Outcome struct {
	Why     Why
	Reply   driver.AcquireReply // the last one
	Replied bool                // there was one
	Err     error               // of Failed
	Unknown bool                // of Failed: a request without an answer may have arrived
	Cause   error               // why the context ended; nil if it has not
}

// MayRetry reports whether another attempt may succeed.
func (o Outcome) MayRetry() bool {
	return o.Why == Busy || o.Why == Failed && !answer.IsRefusal(o.Err) && !answer.IsPermanent(o.Err)
}

// Ended returns the outcome of a call whose context has ended, or whose client if ctx is valid, before
// another attempt could be made.
func (o Outcome) Ended(ctx context.Context, name string) Outcome {
	if ctx.Err() == nil {
		return Outcome{Why: Closed}
	}
	return o.withCause(cause(ctx), name)
}

// withCause adds why the context has ended to an outcome, or replaces an error that only reports the
// end of the context.
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
