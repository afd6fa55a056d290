// Package history finds out whether a store and its clients keep their word,
// without knowing how they do it. Many clients do random things to a few names
// (Plan, Record), each call is written down with its answer (Op), and Check looks
// for answers that contradict each other. Run does all of it:
//
//	func TestHistory(t *testing.T) {
//		history.Run(t, mystore.New(…), history.Plan{Seed: 1, Ops: 10_000})
//	}
//
// The seed decides what each worker asks for, and how long it works; how the workers
// meet is left to the scheduler. A history is judged by what is certain, so that a
// slow machine is never taken for a broken store.
package history

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Verb says what an operation is.
type Verb string

// The operations of a history.
const (
	Take   Verb = "take"   // ask for a lease
	Probe  Verb = "probe"  // ask the lease whether it holds: it did at the call if Err is nil
	Change Verb = "change" // of a lease: up- or downgrade to Weight of Limit
	Look   Verb = "look"   // ask the store who holds what a lease holds
	Free   Verb = "free"   // unlock a lease
	Break  Verb = "break"  // end the holding of Token
	Close  Verb = "close"  // close a client, with all its leases
	Final  Verb = "final"  // what the store shows at the very end
)

// A Moment is a point of a history.
type Moment struct {
	// Order counts all moments of a history. It is exact also where time stands
	// still, and the order in which things truly happened: what ended at a smaller
	// one than that at which another thing began, ended before.
	Order int
	At    time.Duration // since the history began, on the monotonic clock
}

// Before reports whether m came before o.
func (m Moment) Before(o Moment) bool { return m.Order < o.Order }

// An Op is one call with its answer.
type Op struct {
	ID     int // its place in the history, from 1
	Verb   Verb
	Of     int    // the ID of the Take that a Probe, Change, Look or Free belongs to
	Label  string // who asks: worker and step, also in the token
	Names  []string
	Token  string // of the lease; of Break, of the victim
	Call   Moment
	Return Moment
	Err    error

	// Of Take and Change:
	Weight, Limit int
	Try           bool // it never queues
	TTL, MinHold  time.Duration
	Fences        []uint64 // granted, for each of Names
	Ticket        uint64   // its place in the queue, if it was told one,
	Queued        Moment   // and when

	Broke  bool     // of Break: the store said so
	Tokens []string // of Look, who holds; of Final, who holds or waits
}

// Alone reports whether the operation asks for a name to itself.
func (o *Op) Alone() bool { return o.Weight == o.Limit }

// String tells the operation in a line.
func (o *Op) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "#%d %s %s %s [%d…%d, %v…%v]", o.ID, o.Label, o.Verb, strings.Join(o.Names, "+"),
		o.Call.Order, o.Return.Order, o.Call.At, o.Return.At)
	switch o.Verb {
	case Take, Change:
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
	case Look, Final:
		fmt.Fprintf(&s, " tokens=%q", o.Tokens)
	case Break:
		fmt.Fprintf(&s, " of %s: %v", o.Token, o.Broke)
	}
	if o.Err != nil {
		fmt.Fprintf(&s, " error: %v", o.Err)
	}
	return s.String()
}

func weight(weight, limit int) string {
	switch {
	case weight == limit:
		return "alone"
	case limit == driver.Unlimited:
		return "reading"
	}
	return fmt.Sprintf("%d of %d", weight, limit)
}

// A History is what was recorded, in the order of the calls.
type History []*Op

// A Recorder writes a history. It is safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	begin time.Time
	order int
	ops   History
}

// NewRecorder returns a recorder of a history that begins now.
func NewRecorder() *Recorder { return &Recorder{begin: time.Now()} }

// Now returns this moment.
func (r *Recorder) Now() Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now()
}

// now is Now for who has the mutex: it makes time grow with the order.
func (r *Recorder) now() Moment {
	r.order++
	return Moment{r.order, time.Since(r.begin)}
}

// Call writes down an operation that begins now. The caller fills in what comes out
// of it, until the history is read.
func (r *Recorder) Call(op Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.ID, op.Call = len(r.ops)+1, r.now()
	r.ops = append(r.ops, &op)
	return &op
}

// Return writes down that an operation has ended now.
func (r *Recorder) Return(op *Op, err error) {
	op.Return, op.Err = r.Now(), err
}

// History returns what was recorded, once all operations have ended.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ops
}
