// Package acquire acquires locks at a store: from a request until a grant, or until nothing is left
// at the store. It also removes from the store the remains of calls and leases.
//
// It uses the requests, replies and errors in package driver. The caller turns a grant into a
// lease: the package does not depend on leases, options, hooks or public errors.
package acquire

import (
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/work"
)

// An Acquirer contains the state shared by a client's acquires and releases. Set the exported
// fields before its first use. It is safe for concurrent use.
type Acquirer struct {
	Sender
	Store   *Store
	Work    *work.Background
	Timeout time.Duration // for an operation in the background
	Inbox   Inbox

	seq       atomic.Uint64
	tokens    tokens
	lateness  lateness
	announcer announcer
	polls     pollPacer
}

// Granted delivers the event for a grant, or an event that makes a waiter repeat its request.
func (a *Acquirer) Granted(e driver.Event) {
	if e.Age >= lateAge {
		a.lateness.begin(a.Clock.Now())
	}
	a.Inbox.Deliver(e)
}

// GrantsLost records that grant events are lost.
func (a *Acquirer) GrantsLost() { a.lateness.begin(a.Clock.Now()) }
