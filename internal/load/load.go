// Package load bounds what clients do to a server that is slow or down: how many requests they
// have on their way, and how often they connect. Otherwise a slow server is kept busy by requests
// that come too late, and by their repetitions.
//
// It does no I/O and reads no clock: times are arguments, so that it runs in simulations as it
// is. Gate, which blocks callers, is the exception.
package load

import "time"

// A Kind is what a request is for. Each kind has its share of the budget, so that none has to
// wait until another one has nothing more to send.
type Kind uint8

// The kinds of requests.
const (
	Renewal Kind = iota // of leases; it may use the whole limit, whatever else is on its way
	Waiter              // the heartbeat of a waiter, or its request after a notification
	Retry               // of a call that had no answer
	Cleanup             // a cancel or a release that goes on in the background
	kinds
)

// An Outcome is what came of a request.
type Outcome uint8

// The outcomes of requests.
const (
	Answered   Outcome = iota // late or not
	Unanswered                // nobody waits for the answer any longer, or it is very late
	Failed                    // the connection broke, or could not be opened
	Dropped                   // it did not leave the process, or its caller gave up: this tells nothing
)

// renewalsInUnit is how many leases are renewed for the cost of one other request.
const renewalsInUnit = 8

// Units returns the size of a request that renews this many leases. Any other request has one
// unit.
func Units(leases int) int { return (leases + renewalsInUnit - 1) / renewalsInUnit }

// Leases returns how many leases a request of this many units may renew.
func Leases(units int) int { return units * renewalsInUnit }

// A Sent is a request on its way.
type Sent struct {
	kind   Kind
	at     time.Duration
	units  int     // zero after its end
	filled bool    // with it, at least half of the share of its kind was on its way
	limit  float64 // with which what was on its way would have filled the share
}
