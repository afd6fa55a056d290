package driver

import "time"

// A Voter is a Store that can be a node in a quorum: see package quorum. The quorum asks all its
// nodes for their votes. A vote is a lease on the node. The quorum's requests contain a Vote. A
// Voter uses the Vote in Acquire, Cancel, Resize and Release; other stores ignore it. Requests with
// and without a Vote wait in the same queue.
type Voter interface {
	Store
	Resizer
	Revoker
	WantedNotifier
	Inspector
	Lister

	// CanVote returns nil if the store can be a node. If the store's configuration does not allow
	// this, it returns ErrInvalid with the reason. It does no I/O.
	CanVote() error
}

// A Vote contains the fields that a quorum adds to a request for its nodes. Such a request has a
// single name. A Vote must not change after it was sent.
type Vote struct {
	Ticket uint64 // the ticket of the queue entry; all nodes serve smaller tickets first
	Fence  uint64 // the node grants this fence or a larger fence

	// RecoveryWindow is how long a new or restarted node must not grant the name: it may have lost a
	// lease. During this time, Acquire returns an UnavailableError with Refused and a RecoveringError,
	// unless the token already holds the name.
	RecoveryWindow time.Duration

	// Relinquish is for an Acquire with Queue whose token holds the name. If a request with a smaller
	// ticket waits, this request gets the name, and the token waits again.
	Relinquish bool
}

// A VoteReply contains the fields that a node adds to its reply to a request with a Vote, and to
// EventGranted. If the token does not hold the name, AcquireReply.Fence is the largest fence that
// the node has recorded.
type VoteReply struct {
	Node string // an identifier for the node's data, which changes if the data is lost
}
