package driver

import (
	"fmt"
	"time"
)

// An EventKind is the kind of an Event.
type EventKind int

const (
	// EventGranted: Event.Token holds the name, because its queue entry with Event.Ticket was
	// served.
	EventGranted EventKind = iota + 1
	// EventRetry: the client should send its request with Event.Token again, because something
	// changed.
	EventRetry
	// EventRevoked: a lease with Event.Token was revoked, for Event.Reason. Its fence is at most
	// Event.Fence; a later lease with this token has a larger fence.
	EventRevoked
	// EventWanted: a request waits for the name held by Event.Token. See WantedNotifier.
	EventWanted
	// EventConnected: events flow from now on; earlier events may be lost.
	EventConnected
	// EventDisconnected: events stopped, because of Event.Err. The store reconnects by itself.
	EventDisconnected
	// EventFailover: another server took over and may have lost leases. Events flow as before.
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
