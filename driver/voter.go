package driver

import "time"

// A Voter is a Store that can be a node in a quorum: see package quorum. The quorum asks all its
// nodes for their votes; a vote is a lease on the node. The quorum's requests have a Vote, which a
// Voter processes in Acquire, Cancel, Resize and Release. Other stores ignore it. Requests on a
// name share a single queue, with or without a Vote.
type Voter interface {
	Store
	Resizer
	Revoker
	WantedNotifier
	Inspector
	Lister

	// CanVote returns nil, or ErrInvalid with the reason if the store's configuration does not
	// allow it to be a node. It does no I/O.
	CanVote() error
}

// A Vote is a quorum's addition to a request for its nodes. A request with a Vote is for a single
// name. A Vote must not change after it was sent.
type Vote struct {
	Ticket uint64 // the queue entry's ticket: smaller tickets are served first, on all nodes
	Fence  uint64 // the smallest fence for a grant

	// RecoveryWindow is how long a node must have kept its data before it grants. Until then,
	// Acquire returns a RecoveringError in a Refused UnavailableError, unless the token holds the
	// name.
	RecoveryWindow time.Duration

	// Relinquish hands off the name to an older waiting request, if the token holds it.
	Relinquish bool
}

// A VoteReply is a node's addition to its reply to a request with a Vote, and to the grant's event.
// If the token does not hold the name, the reply's Fence is the node's fence high-water mark.
type VoteReply struct {
	Node string // the node's incarnation, which changes if the node loses its data
}
