package driver

import (
	"context"
	"time"
)

// A Voter is a Store that can be a node of a quorum: see package quorum. The quorum asks
// all its nodes for their votes, and a vote is a lease on the node. The methods are those
// of Store and Resizer with a Vote. A Voter serves requests with and without a Vote on one
// name, in one queue.
type Voter interface {
	Store
	Resizer
	Revoker
	WantedNotifier
	Inspector
	Lister

	// AcquireVote is Acquire for one name, with the ticket and the fence of the quorum. It
	// returns a RecoveringError, refused, if the node is younger than v.RecoveryWindow and
	// the token does not hold the name.
	AcquireVote(ctx context.Context, c AcquireRequest, v Vote) (VoteReply, error)

	// CancelVote is Cancel. A waiter that it serves gets the fence of v at least.
	CancelVote(ctx context.Context, c AcquireRequest, v Vote) error

	// ResizeVote is Resize. The new fence is that of v at least.
	ResizeVote(ctx context.Context, c AcquireRequest, v Vote) (AcquireReply, error)

	// ReleaseVote is Release. A waiter that it serves gets the fence of v at least.
	ReleaseVote(ctx context.Context, r ReleaseRequest, v Vote) (bool, error)
}

// A Vote is what a quorum adds to a request to its nodes.
type Vote struct {
	Ticket         uint64        // of the queue entry: smaller ones are served first, on all nodes
	Fence          uint64        // the smallest fence that a grant may have
	RecoveryWindow time.Duration // a node younger than this does not grant
	Relinquish     bool          // if the token holds and an older request waits, grant the name to that one
}

// A VoteReply is the result of an AcquireVote. Its Fence is the fence high-water mark of the
// node if the token does not hold.
type VoteReply struct {
	AcquireReply
	Node string // the incarnation of the node: it changes if the node loses its data
}
