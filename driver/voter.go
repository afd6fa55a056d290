package driver

import "time"

// A Voter is a Store that can be a node of a quorum: see package quorum. The quorum asks
// all its nodes for their votes, and a vote is a lease on the node. Its requests have a Vote,
// which a Voter processes in Acquire, Cancel, Resize and Release. Other stores ignore it.
// Requests with and without a Vote on one name share one queue.
type Voter interface {
	Store
	Resizer
	Revoker
	WantedNotifier
	Inspector
	Lister

	// CanVote returns why the store cannot be a node in its configuration, as ErrInvalid, or
	// nil. It does no I/O.
	CanVote() error
}

// A Vote is the part of a request that a quorum adds for its nodes. A request with a Vote has one name.
// Nobody changes a Vote after it was sent.
type Vote struct {
	Ticket uint64 // of the queue entry: smaller ones are served first, on all nodes
	Fence  uint64 // the smallest fence of a grant that follows from the request

	// RecoveryWindow is how long the node must have kept its data before it grants. Until then,
	// Acquire returns a RecoveringError, refused, unless the token holds the name.
	RecoveryWindow time.Duration

	// Relinquish hands the name to an older request that waits, if the token holds it.
	Relinquish bool
}

// A VoteReply is what a node adds to its reply to a request with a Vote, and to the event of
// the grant. The Fence of such a reply is the fence high-water mark of the node if the token
// does not hold.
type VoteReply struct {
	Node string // the incarnation of the node: it changes if the node loses its data
}
