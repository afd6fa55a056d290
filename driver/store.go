package driver

import (
	"context"
	"time"
)

// WaiterTTL is how long a queue entry lives without a heartbeat. It is also the maximum
// of the hand-off TTL, the first TTL of a lease that was granted by a hand-off.
const WaiterTTL = 5 * time.Second

// MaxName is the longest name that a store accepts, in bytes.
const MaxName = 512

// Unlimited is the largest weight and limit that a store accepts. It is the weight of a
// writer and the limit of readers and writers.
const Unlimited = 1<<31 - 1

// MaxNames is the largest number of names that one lease can hold.
const MaxNames = 100

// The bounds of a TTL that a user sets. Below MinTTL, the safety margin for clocks and timers would be
// most of the lease. Above MaxTTL, a crash would block a name for more than a day.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// MaxReserve is the longest time for which a name is kept unavailable on purpose: the interval of a
// periodic job. The lease of such a job starts with it as its TTL, so that it outlives a crash. A
// store accepts a TTL and a Reserve of this length.
const MaxReserve = 366 * 24 * time.Hour

// OperationTimeout bounds an operation whose context has no deadline. It is also the default
// of the option Timeout.
const OperationTimeout = time.Second

// DeadlineOf returns when an operation with this context ends at the latest: at the deadline
// of the context, or OperationTimeout from now.
func DeadlineOf(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(OperationTimeout)
}

// A Store is where locks live: what a mutex with a wait queue needs. What a store can do beyond it is
// in optional interfaces, each with its requests in a file of its own:
//
//   - [Grouper]: several names in one step
//   - [Resizer]: another weight for a lease
//   - [Revoker], [ForeignRevoker]: the end of a lease, or of a foreign lock, by an operator
//   - [Inspector], [Lister]: states
//   - [WantedNotifier]: a holder learns of waiters
//   - [FenceReserver]: further fences of a lease
//   - [Announcer]: requests that follow later
//
// [Complete] finds those of a store, and says what stands in for a missing one. Every store passes
// the conformance suite, package storetest, which checks the interfaces that it finds.
//
// One clock decides for all clients when a lease, a reservation or a queue entry ends: that
// of the server or, for a file, that of the machine. The clocks of the processes that use a
// store may differ by hours, so none of them decides for another process. A time in a
// request, Until, is of the clock of its sender, and the store translates it.
//
// A request may be executed although its reply is lost, and is sent again then. The second
// execution has the result of one: it grants, queues and releases nothing more.
//
// Contention is a reply; an error is a failure of the store. A store returns
// ErrUnavailable (outcome unknown, or rejected: see [UnavailableError]), ErrWrongType or
// ErrInvalid, Extend also ErrLost, and never ErrBusy. All methods are safe for concurrent use, and
// return soon after their ctx ends, whatever the server does. If it has ended before the call, they
// return ErrUnavailable at once.
//
// A store starts no renewals and keeps no record of the holders in this process: the
// Client does both.
//
// A store that forwards to another one embeds a *[Full], which forwards all its methods.
type Store interface {
	// Acquire acquires the name for r.Token, or adds the token to the wait queue.
	//
	// It is idempotent by token. If the token holds the name already, the reply is Held,
	// and the remaining time is raised to r.TTL if it is shorter. If the token waits
	// already, it keeps its queue entry, and the request is its heartbeat. Acquire
	// neither grants nor queues after r.Until, even if the request is delivered later,
	// and it has returned by then. The fence in a reply is larger than each fence granted
	// before on that name. That of a repeated request is not smaller than the one before.
	//
	// A request for several names is sent to a [Grouper] only. It acquires all of them or none, in one step, and waits in
	// all their queues with one ticket. If the token held all of them and has lost one,
	// it loses the others. No hand-off grants such a request. Instead, a release of one
	// of its names sends EventRetry to it if it is at the head of that queue.
	Acquire(ctx context.Context, r AcquireRequest) (AcquireReply, error)

	// Cancel undoes an Acquire whose outcome is unknown or unwanted: afterwards the token
	// neither holds nor waits. What it held is granted to the next waiters. Here r.Until
	// is the limit of the Cancel, not of the Acquire: it has no effect if it is delivered
	// later.
	Cancel(ctx context.Context, r AcquireRequest) error

	// Release ends the lease of r.Token and grants the name to the first live waiters
	// that fit, in the same atomic step. It returns false if the token did not hold the
	// name. It has no effect if it is delivered after r.Until: the token may be in use
	// again by then, except with r.LastUse. With r.Reserve it grants nothing. It sends
	// EventRetry to the first waiter, whose next request learns when the name is free.
	Release(ctx context.Context, r ReleaseRequest) (bool, error)

	// Extend raises the remaining time of each lease to its TTL, in as few round trips as
	// possible. The i-th result is nil if the i-th token held the name, ErrLost if it
	// certainly did not, and any other error if the outcome is unknown. Extend never
	// restores a lease that has ended.
	Extend(ctx context.Context, requests []ExtendRequest) []error

	// Watch calls on with the events for one client until ctx ends, and then returns. It
	// may call on from several goroutines. It reconnects by itself, and calls on with
	// EventConnected each time events begin to flow. Events are hints: a lost one costs
	// latency only. Watch returns before ctx ends only if the store has no notifications
	// at all.
	//
	// A store may send requests of its own for a Watch, such as pings. While busy returns
	// false, the client holds and awaits nothing, and the store sends none of them. Soon
	// after busy returns true again, it verifies that events can arrive. It calls busy from
	// time to time, and from several goroutines. If busy is nil, the client is always busy.
	Watch(ctx context.Context, client string, busy func() bool, on func(Event)) error
}

// Times of late waiters: see AcquireRequest.Late.
const (
	LateAnswer   = WaiterTTL / 10 // within which one answers whose link is good again
	LatePatience = 3 * WaiterTTL  // after which one is granted the name unasked
)

// An AcquireRequest is a request to hold a name. Each primitive is a weighted semaphore:
// a request takes Weight of Limit. It fits if the held weights and its own are together
// at most its own limit. A request whose weight equals its limit is exclusive. A mutex is
// 1 of 1, a reader 1 of Unlimited, and a writer Unlimited of Unlimited. A store does not
// distinguish writers and mutexes.
type AcquireRequest struct {
	Name    string
	With    []string      // further names, all held together and exclusively
	Token   string        // the identity of the lease's owner
	Client  string        // the client whose Watch receives the events of this request
	Seq     uint64        // order of the requests of one client at the same instant
	TTL     time.Duration // how long the store keeps a lease that is not renewed
	Weight  int           // how much of Limit the request takes
	Limit   int           // how much may be held together
	Queue   bool          // join the wait queue if the name is not free
	MinHold time.Duration // the name stays unavailable for this long, even if the owner crashes
	Until   time.Time     // the request has no effect after this instant, by this process's clock

	// Ticket is the ticket of the last reply to this request, or zero. It is the place of a
	// waiter in the wait queue. If a store has no queue entry of the token any more, it adds one
	// at this place, with this ticket or a slightly larger one. So a waiter keeps its place
	// after a stall.
	Ticket uint64

	// Confirmed is when the last request that was answered with Ticket was sent. It shows
	// whether the store has lost the queue: a queue entry that was confirmed within the
	// HandoffTTL was not removed. The other waiters come back then, too.
	Confirmed time.Time

	// Late means that hand-offs have reached this client late, or were lost, not long ago. It is
	// the same in all requests for one queue entry, and false with further names. Another grant
	// may be late again, and leave the name idle for the HandoffTTL. So at its turn the store
	// sends EventRetry to such a waiter, and passes over it until its next request. If that
	// comes within LateAnswer, the waiter can be reached, and the next hand-off grants the name
	// to it. A waiter that always answers later is granted the name LatePatience after its
	// first turn. It keeps its place. A store may ignore Late.
	Late bool

	// Vote is set by a quorum only: see Voter.
	Vote *Vote
}

// Exclusive reports whether the request tolerates no other holder.
func (r AcquireRequest) Exclusive() bool { return r.Weight == r.Limit }

// Names returns all names of the request.
func (r AcquireRequest) Names() []string { return append([]string{r.Name}, r.With...) }

// HandoffTTL returns the first TTL of a lease that a hand-off grants to this request. The
// first renewal, off the critical path, raises it to TTL. It is short so that a waiter
// that has crashed does not block the others for a whole TTL.
func (r AcquireRequest) HandoffTTL() time.Duration { return min(WaiterTTL, r.TTL) }

// An AcquireReply is the result of an Acquire or a Resize.
type AcquireReply struct {
	Held bool // the token holds the name

	// Fence is that of the grant, if Held. Otherwise no earlier grant has a larger one; zero means
	// that the store does not know. A store must know if it may issue a ticket twice for one token,
	// because a reply was lost. A Client accepts an event as the grant of its queue entry if it has
	// the ticket of the last reply and a larger fence.
	Fence uint64

	// If not Held:
	Name      string        // of several names, one that is not free
	Holder    string        // the token of a holder; empty if the name has none at this moment
	Reserved  bool          // the holder has released its lease, and the name stays unavailable
	Remaining time.Duration // until the first holder expires; negative if it never does
	Ticket    uint64        // of the queue entry; zero if not queued
	Position  int           // 1 is served next, zero if not queued; a store may count up to 100 waiters before it
	Poll      time.Duration // least time between two requests if no notification follows, since the holder is a client of another library; else zero

	Vote VoteReply // to an Acquire with a Vote; zero for others
}

// NeverExpires reports whether the first holder has no remaining time, but stays.
func (r AcquireReply) NeverExpires() bool { return r.Remaining < 0 }

// A ReleaseRequest ends a lease.
type ReleaseRequest struct {
	Name      string
	Token     string
	Fence     uint64        // the fence of the lease; zero if unknown
	Reserve   time.Duration // keep the name unavailable for this long: its Holder is then Reserved
	Until     time.Time     // no effect after this instant, by this process's clock; zero: the store's own limit
	Unreserve bool          // end what an earlier release of this token has reserved, not a lease

	// LastUse means that nobody acquires with this token again. A late delivery then
	// finds nothing to release, so the store need not check Until where it is executed.
	LastUse bool

	// Vote is set by a quorum only: see Voter.
	Vote *Vote
}

// An ExtendRequest is one lease to be extended. The store may record its fence and
// client, for Inspect and Revoke.
type ExtendRequest struct {
	Name   string
	Token  string
	Client string
	Fence  uint64 // zero if unknown
	TTL    time.Duration
	Weight int // of Limit; zero if unknown, as for an attached lease
	Limit  int
}
