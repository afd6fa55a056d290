package driver

import (
	"context"
	"time"
)

// ClaimTTL is how long a place in a queue lives without a heartbeat, and the
// longest that a hand-off grants before the new holder's own TTL takes over.
const WaiterTTL = 5 * time.Second

// MaxName is the longest name that a store accepts, in bytes.
const MaxName = 512

// Unlimited is the weight of a writer and the limit of readers: more than any
// number of readers, and the largest weight and limit that a store accepts.
const Unlimited = 1<<31 - 1

// MaxTogether is how many names may be held by one lease.
const MaxNames = 100

// The bounds of a TTL. Below MinTTL the margin for clocks and timers would be
// most of the lease; above MaxTTL a crash would be found on another day.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// A Store is where claims live. Every store passes the laws in package storetest.
//
// Contention is an answer, an error is the store's trouble: a store returns
// ErrUnavailable (unknown outcome, or refused: see [UnavailableError]), ErrForeign
// or ErrInvalid, and never ErrBusy. All methods are safe for concurrent use, and
// return soon after their ctx ends whatever the server does.
//
// A store starts no renewal and keeps no record of who holds what in this
// process: that is the Client's.
type Store interface {
	// Acquire takes the name for the claim's token, or joins its queue. It is
	// idempotent by token: asking again with the token that holds answers Held
	// and lifts the TTL to the claim's; asking again from the queue keeps the place
	// and is its heartbeat. It neither grants nor queues after c.Until, also when
	// the request is delivered later than that, and it has returned by then.
	// A fence in an answer is larger than each fence granted before for that name.
	//
	// A claim with further names takes all of them or none, in one step, and waits
	// in all their queues under one ticket. If it held them and has lost one, it loses
	// the others. It is not granted by a hand-off: a
	// release of one of its names, where it is first in line, makes it ask.
	Acquire(ctx context.Context, c AcquireRequest) (AcquireReply, error)

	// Groups sorts names into groups that one Acquire can take, in an order that is
	// the same for all clients of the store: whoever takes several groups does it in
	// this order, so that no two wait for each other.
	Groups(names []string) [][]string

	// Abandon undoes an Acquire whose outcome is unknown or unwanted: afterwards
	// the claim neither holds nor queues. What it held is handed on. Here c.Until is
	// the limit of this request, not of the Acquire: as with Release, it has no effect
	// when it is delivered later.
	Cancel(ctx context.Context, c AcquireRequest) error

	// Reweigh changes how much of the limit a token holds, and lifts its TTL to the
	// claim's. It answers not Held, and changes nothing, if the token does not hold or
	// if others hold too much. Less makes room: who fits then is served.
	Resize(ctx context.Context, c AcquireRequest) (AcquireReply, error)

	// Break ends the holding that has this fence, whoever asks, and hands the name
	// on. It tells the holder's client with Broken. It reports false, and changes
	// nothing, if no holding is known to have it.
	Revoke(ctx context.Context, name string, fence uint64) (bool, error)

	// Release ends the holding of r.Token and hands the name to the first live
	// waiters that fit in the same atomic step. It reports false if the token did
	// not hold. It has no effect when it is delivered after r.Until: the token may be
	// in use again by then.
	Release(ctx context.Context, r ReleaseRequest) (bool, error)

	// Extend lifts the remaining life of each hold to its TTL, in as few round trips
	// as the store can. The i-th result is nil if the i-th token held the
	// name, ErrLost if it cleanly did not, and any other error if that is unknown.
	// It never brings back a lease that has ended.
	Extend(ctx context.Context, holds []ExtendRequest) []error

	// Watch calls on with the events for one client until ctx ends, and returns. It may
	// call on from several goroutines.
	// It reconnects by itself and calls on with Up each time events flow (again).
	// Events are hints: one may be lost, and then costs latency. It returns early
	// only if the store cannot push at all.
	Watch(ctx context.Context, client string, on func(Event)) error

	// Inspect returns the state of a name as the store has it.
	Inspect(ctx context.Context, name string) (State, error)

	// List returns the names that match a glob (*, ?, [a-z], \ to quote) and are
	// held, in no order.
	List(ctx context.Context, pattern string) ([]string, error)
}

// A Claim is a request to hold a name. Each primitive is a weighted semaphore:
// a claim weighs Weight of Limit. It fits if what is held and its own weight are
// not more than its own limit. Who weighs as much as his limit holds alone: a mutex
// is 1 of 1, a reader 1 of Unlimited, a writer Unlimited of Unlimited, and a writer
// and a mutex are the same to a store.
type AcquireRequest struct {
	Name    string
	With    []string      // further names, to be held alone and all together
	Token   string        // the owner's identity
	Client  string        // where Watch listens for this claim's events
	Seq     uint64        // orders the claims of one client that arrive in one instant
	TTL     time.Duration // how long the store keeps the lease unrenewed
	Weight  int           // how much of Limit the claim takes
	Limit   int           // how much may be held at once
	Queue   bool          // join the queue if the name is taken
	MinHold time.Duration // the name stays taken for this long, also if its owner dies: see MinHold
	Until   time.Time     // the claim is void after this instant, on this process' clock
	Vote    *VoteRequest  // what a quorum asks of its nodes, nil of a store alone
}

// A Ballot is what one store is asked beside the claim or release itself when it is a
// node of a quorum, which needs the votes of most. A store that cannot be one says
// ErrInvalid to it.
type VoteRequest struct {
	Ticket         uint64        // the place in the queue: the smaller is served first, on all nodes
	Fence          uint64        // the least fence for whom this grants, or hands on to
	RecoveryWindow time.Duration // grant nothing before everything of so long ago is remembered
	Relinquish     bool          // if the claim holds and an older one waits, that one is to have it
}

// Alone reports whether the claim tolerates no other holder.
func (c AcquireRequest) Exclusive() bool { return c.Weight == c.Limit }

// Names returns all names of the request.
func (c AcquireRequest) Names() []string { return append([]string{c.Name}, c.With...) }

// HandoffTTL is how long a hand-off grants this claim: the new holder's first
// renewal, off its critical path, lifts it to TTL. It is short so that a waiter
// who died in the queue does not cost the others a whole lease.
func (c AcquireRequest) HandoffTTL() time.Duration { return min(WaiterTTL, c.TTL) }

// An Answer is what Acquire found.
type AcquireReply struct {
	Held  bool
	Fence uint64 // if Held. Else, to a ballot: no fence granted so far is larger
	Node  string // to a ballot: which store this is. One that forgets everything is another

	// If not Held:
	Name      string        // of a claim on several names, one that is taken
	Holder    string        // a token that holds, empty if the name is between owners
	Remaining time.Duration // until the first holder expires; negative if it never does
	Ticket    uint64        // the place in the queue, zero if not queued
	Position  int           // 1 is served next, zero if not queued
	Round     uint64        // of a quorum: which question it was
}

// Kept follows the token of a holding that is over, while its name is kept taken: so
// that a renewal that was under way cannot prolong it.
const ReservedSuffix = " reserved"

// A Release ends a holding.
type ReleaseRequest struct {
	Name    string
	Token   string
	Fence   uint64        // the holder's fence, zero if unknown
	Reserve time.Duration // keep the name taken for so long yet, by the token and Kept
	Until   time.Time     // the release is void after this instant, on this process' clock; zero: soon

	Vote *VoteRequest // see Claim
}

// A Hold names a holding to be extended. The store may note its fence and client,
// for Inspect and Break.
type ExtendRequest struct {
	Name   string
	Token  string
	Client string
	Fence  uint64 // zero if unknown
	TTL    time.Duration
	Weight int // of Limit; zero if it is not known: of an attached lease
	Limit  int
}

// An EventKind says what an Event tells.
type EventKind int

const (
	// Granted: the claim with Event.Token holds the name since its place with
	// Event.Ticket came up.
	EventGranted EventKind = iota + 1
	// Look: ask again for Event.Token, something changed.
	EventRetry
	// Broken: the holding with Event.Token and Event.Fence is no more.
	EventRevoked
	// Up: events flow from now on; what happened before may have been missed.
	EventConnected
	// Down: events stopped, Event.Err says why. The store tries again.
	EventDisconnected
	// Changed: another server has taken over, which may have forgotten claims. Events
	// flow as before.
	EventFailover
)

// An Event is pushed to a client by Watch.
type Event struct {
	Kind   EventKind
	Token  string
	Fence  uint64
	Ticket uint64
	Node   string        // which store granted it, to a claim with a ballot
	Round  uint64        // of a quorum: since which question it was granted
	Age    time.Duration // how long ago the grant was sent off, zero if unknown
	Err    error
}

// State is what a store knows of a name, at one moment.
type State struct {
	Name    string
	Holders []Holder // at most 100, those that expire first
	Holding int      // all of them
	Waiters []Waiter // the first 100, in the order of service
	Waiting int      // all of them
	Fence   uint64   // no fence granted for this name so far is larger
}

// A Holder holds a name.
type Holder struct {
	Token     string
	Label     string
	Weight    int           // how much it holds; zero: it holds alone
	Fence     uint64        // zero if the store was not told of it yet
	Remaining time.Duration // negative: never expires, and so not a claim of dibs
}

// A Waiter queues for a name.
type Waiter struct {
	Token  string
	Label  string
	Waited time.Duration
}
