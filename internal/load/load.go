// Package load limits the load that clients put on a slow or unreachable server: their requests in
// flight, and their connection attempts. Otherwise late requests and their retries would keep a
// slow server busy.
//
// It does no I/O and reads no clock: times are arguments, so that simulations can run it unchanged.
// Only Gate blocks its callers.
package load

import "time"

// A Kind classifies requests. Each kind has its own share of the budget, so that no kind waits for
// another to finish.
type Kind uint8

// Kinds of requests.
const (
	Renewal Kind = iota // can use the whole limit, whatever else is in flight
	Waiter              // a waiter's heartbeat, or its request after a notification
	Retry               // repeats a call's unanswered request
	Cleanup             // a cancel or a release that continues in the background
	kinds
)

// An Outcome is a request's result.
type Outcome uint8

// Outcomes of requests.
const (
	Answered   Outcome = iota // late or not
	Unanswered                // nobody waits for the answer any longer, or it is very late
	Failed                    // the connection broke, or could not be opened
	Dropped                   // it did not leave the process, or its caller gave up: this tells nothing
)

// renewalsInUnit is how many renewals cost as much as any other request.
const renewalsInUnit = 8

// Units returns the size of a request that renews this many leases. Any other request is a single
// unit.
func Units(leases int) int { return (leases + renewalsInUnit - 1) / renewalsInUnit }

// Leases returns how many leases a request with this many units can renew.
func Leases(units int) int { return units * renewalsInUnit }

// A Sent is a request on its way.
type Sent struct {
	kind   Kind
	at     time.Duration
	units  int     // zero after its end
	filled bool    // at least half its kind's share was in flight with it
	limit  float64 // the limit at which the amount in flight would have filled the share
}
