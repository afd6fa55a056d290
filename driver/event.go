package driver

import (
	"fmt"
	"time"
)

// An EventKind is the kind of an Event.
type EventKind int

const (
	// EventGranted: Event.Token holds the name, because its queue entry with Event.Ticket
	// was served.
	EventGranted EventKind = iota + 1
	// EventRetry: the request with Event.Token should be sent again, because something
	// changed.
	EventRetry
	// EventRevoked: a lease with Event.Token was revoked, because of Event.Reason. Its
	// fence is at most Event.Fence, and a later lease with this token has a larger one.
	EventRevoked
	// EventWanted: a request waits for the name that Event.Token holds: see
	// WantedNotifier.
	EventWanted
	// EventConnected: events flow from now on; earlier ones may be lost.
	EventConnected
	// EventDisconnected: events stopped, because of Event.Err. The store reconnects.
	EventDisconnected
	// EventFailover: another server has taken over and may have lost leases. Events flow
	// as before.
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

// An Event is a notification that Watch delivers to a client.
type Event struct {
	Kind   EventKind
	Token  string
	Fence  uint64
	Fences uint64 // how many fences, up to Fence, belong to the grant; zero: not known, so only Fence does
	Ticket uint64
	Vote   VoteReply     // of EventGranted, if the request has a Vote
	Age    time.Duration // time since the grant was sent; zero if unknown
	Reason string        // of a revocation; may be empty
	Err    error
}
