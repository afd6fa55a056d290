// Package history checks a store and its clients as a black box. Many clients run random operations
// on a few names (Plan, Record). Each call is recorded with its result (Op), and Check finds
// contradictory results. Run does all of it:
//
//	func TestHistory(t *testing.T) {
//		history.Run(t, mystore.New(…), history.Plan{Seed: 1, Ops: 10_000})
//	}
//
// The seed determines the operations of each worker and how long it works. The scheduler determines
// how the workers interleave. Check uses only certain facts, so a slow machine cannot make a
// correct store fail.
package history

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Verb is an operation's kind.
type Verb string

// Operations in a history.
const (
	Acquire Verb = "acquire" // request a lease
	Probe   Verb = "probe"   // call a lease's Err: nil means that the lease held at the call
	Resize  Verb = "resize"  // upgrade or downgrade a lease to Weight out of Limit
	Inspect Verb = "inspect" // inspect a lease's name
	Release Verb = "release" // unlock a lease
	Revoke  Verb = "revoke"  // revoke the lease with Token
	Close   Verb = "close"   // close a client with all its leases
	Final   Verb = "final"   // holders and waiters at the end
)

// A Moment is a point in a history.
type Moment struct {
	// Order counts all moments in a history. It is exact even if time does not advance, and it is
	// the real order: if an operation ended at a smaller Order than another began, it ended before.
	Order int
	At    time.Duration // since the beginning, on the monotonic clock
}

// Before reports whether m is before o.
func (m Moment) Before(o Moment) bool { return m.Order < o.Order }

// An Op is a call with its result.
type Op struct {
	ID     int // index in the history, from 1
	Verb   Verb
	Of     int    // the Acquire's ID, for a Probe, Resize, Inspect or Release
	Label  string // worker and step; also in the token
	Names  []string
	Token  string // the lease's token; for Revoke: the revoked lease's token
	Call   Moment
	Return Moment
	Err    error

	// For Acquire and Resize:
	Weight, Limit int
	Try           bool // the call never queues
	TTL, MinHold  time.Duration
	Fences        []uint64 // a fence for each name
	Ticket        uint64   // position in the queue; 0 if none was reported
	Queued        Moment   // when the ticket was reported
	Cohort        string   // the call's cohort, or empty
	QueuedBy      string   // with Cohort: the Label of the call that queued for its store lease
	MostPasses    int      // passes in its cohort while others wait; 0: unknown
	PassedOver    bool     // younger waiters may have been served before it: see Waiters

	Revoked bool     // for Revoke: the result
	Tokens  []string // for Inspect: holders; for Final: holders and waiters
}

// Exclusive reports whether the operation requests an exclusive lease.
func (o *Op) Exclusive() bool { return o.Weight == o.Limit }

// String formats the operation on a single line.
func (o *Op) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "#%d %s %s %s [%d…%d, %v…%v]", o.ID, o.Label, o.Verb, strings.Join(o.Names, "+"),
		o.Call.Order, o.Return.Order, o.Call.At, o.Return.At)
	switch o.Verb {
	case Acquire, Resize:
		fmt.Fprintf(&s, " %s ttl=%v", weight(o.Weight, o.Limit), o.TTL)
		if o.MinHold > 0 {
			fmt.Fprintf(&s, " minhold=%v", o.MinHold)
		}
		if o.Ticket > 0 {
			fmt.Fprintf(&s, " ticket=%d@%d", o.Ticket, o.Queued.Order)
		}
		if o.Err == nil {
			fmt.Fprintf(&s, " fences=%v", o.Fences)
		}
	case Inspect, Final:
		fmt.Fprintf(&s, " tokens=%q", o.Tokens)
	case Revoke:
		fmt.Fprintf(&s, " of %s: %v", o.Token, o.Revoked)
	}
	if o.Err != nil {
		fmt.Fprintf(&s, " error: %v", o.Err)
	}
	return s.String()
}

func weight(weight, limit int) string {
	switch {
	case weight == limit:
		return "exclusive"
	case limit == driver.Unlimited:
		return "reader"
	}
	return fmt.Sprintf("%d of %d", weight, limit)
}

// A History is a list of operations in the order of their calls.
type History []*Op

// A Recorder records a history. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	begin time.Time
	order int
	ops   History
}

// NewRecorder returns a recorder for a history beginning now.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now()} }

// Now returns the current moment.
func (r *Recorder) Now() Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now()
}

// now is Now without locking. The caller must hold r.mu, so time grows with the order.
func (r *Recorder) now() Moment {
	r.order++
	return Moment{r.order, time.Since(r.begin)}
}

// Call records an operation beginning now. The caller should set the result before the history is
// read.
func (r *Recorder) Call(op Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.ID, op.Call = len(r.ops)+1, r.now()
	r.ops = append(r.ops, &op)
	return &op
}

// Return records an operation's end.
func (r *Recorder) Return(op *Op, err error) {
	op.Return, op.Err = r.Now(), err
}

// History returns the recorded operations. All must have ended.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ops
}
