// Package acquire acquires locks at a store: from a request to a grant, or to nothing left at the store. It
// removes from the store what a call or a lease has left there.
//
// It knows requests, replies and errors of package driver. What a grant becomes is the business of its
// caller: the package knows no leases, options, hooks, or errors that users see.
package acquire

import (
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/work"
)

// An Acquirer has what the acquires and releases of one client share. The exported fields are set before
// its first use. It is safe for concurrent use.
type Acquirer struct {
	Sender
	Store   *Store
	Work    *work.Background
	Timeout time.Duration // of one operation in the background
	Inbox   Inbox

	seq       atomic.Uint64
	tokens    tokens
	lateness  lateness
	announcer announcer
	polls     pollPacer
}

// Granted delivers the event of a grant, or one that makes a waiter repeat its request.
func (a *Acquirer) Granted(e driver.Event) {
	if e.Age >= lateAge {
		a.lateness.begin(a.Clock.Now())
	}
	a.Inbox.Deliver(e)
}

// GrantsLost records that events of grants are lost.
func (a *Acquirer) GrantsLost() { a.lateness.begin(a.Clock.Now()) }
