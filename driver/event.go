package driver

import (
	"fmt"
	"time"
)

// An EventKind is the kind of an Event.
type EventKind int

const (
	// EventGranted: a waiting request was granted the name, so Event.Token now holds it. Event.Ticket
	// identifies its queue entry.
	EventGranted EventKind = iota + 1
	// EventRetry: the client should repeat its request with Event.Token, because the name may be free
	// or the queue changed.
	EventRetry
	// EventRevoked: an operator ended the lease with Event.Token; Event.Reason is the reason. The
	// ended lease's fence is at most Event.Fence. A later lease with this token has a larger fence.
	EventRevoked
	// EventWanted: a request waits for the name held by Event.Token. See WantedNotifier.
	EventWanted
	// EventConnected: events arrive from now on. Earlier events may be lost.
	EventConnected
	// EventDisconnected: events no longer arrive; Event.Err is the cause. The store reconnects by
	// itself.
	EventDisconnected
	// EventFailover: another server now serves the store, and may have lost leases. Events still
	// arrive.
	EventFailover
)

// String returns the name of the kind, without "Event".
func (k EventKind) String() string {
	names := [...]string{"Granted", "Retry", "Revoked", "Wanted", "Connected", "Disconnected", "Failover"}
	if k < EventGranted || int(k) > len(names) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return names[k-EventGranted]
}

// An Event is a notification from Watch to a client. EventKind says which fields are set.
type Event struct {
	Kind   EventKind
	Token  string
	Fence  uint64
	Fences uint64 // how many fences belong to the grant, the last of which is Fence; zero: unknown, so only Fence
	Ticket uint64
	Vote   VoteReply     // for EventGranted after a request with a Vote
	Age    time.Duration // time since the grant was sent; zero if unknown
	Reason string        // for EventRevoked; may be empty
	Err    error
}
