package driver

import (
	"context"
	"time"
)

// WaiterTTL is how long a queue entry lives without a heartbeat. It is also the longest hand-off
// TTL: the first TTL for a lease granted by a hand-off.
const WaiterTTL = 5 * time.Second

// MaxName is the longest name for a store, in bytes.
const MaxName = 512

// Unlimited is the largest weight and limit. A writer has this weight and limit; readers have this
// limit.
const Unlimited = 1<<31 - 1

// MaxNames is the largest number of names in a single lease.
const MaxNames = 100

// MinTTL and MaxTTL are the bounds for a TTL set by a user. Below MinTTL, the safety margin for
// clocks and timers would take most of the lease. Above MaxTTL, a crash would block a name for more
// than a day.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// MaxReserve is the longest time for which a name can be reserved: the longest interval for a
// periodic job. To survive a crash, the job's lease starts with the interval as its TTL. So a store
// must accept this length both as a TTL and as a Reserve.
const MaxReserve = 366 * 24 * time.Hour

// OperationTimeout limits an operation without a deadline in its context. It is also the default
// for the option Timeout.
const OperationTimeout = time.Second

// DeadlineOf returns the latest time at which an operation with this context must end: the
// context's deadline, otherwise OperationTimeout from now.
func DeadlineOf(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(OperationTimeout)
}

// A Store keeps the locks for Clients. These methods are enough for a mutex with a wait queue.
// Further abilities are optional interfaces:
//
//   - [Grouper]: acquire several names in a single step
//   - [Resizer]: change a lease's weight
//   - [Revoker], [ForeignRevoker]: end a lease or a foreign lock, for an operator
//   - [Inspector], [Lister]: return states
//   - [WantedNotifier]: notify a holder when a request waits
//   - [FenceReserver]: reserve further fences for a lease
//   - [Announcer]: prepare for later requests
//
// [Complete] finds a store's interfaces, and adds a substitute for each missing interface. Every
// store should pass the conformance suite, package storetest. The suite tests all interfaces of the
// store.
//
// A single clock decides for all clients when a lease, a reservation or a queue entry ends: the
// server's clock or, for a file, the machine's clock. The clocks of the client processes may differ
// by hours, so a store must not compare them with each other. A request's Until is a time of the
// sender's clock. The store converts it to the deciding clock.
//
// A request can take effect although its reply is lost. The client then sends it again. The second
// execution must not grant, queue or release anything more, and must return the same result.
//
// A busy name is no error: the reply describes it. A store returns only ErrUnavailable,
// ErrWrongType or ErrInvalid; only Extend can also return ErrLost. ErrUnavailable means an unknown
// outcome or a rejected request: see [UnavailableError]. Only a Client returns ErrBusy.
//
// All methods are safe for concurrent use. They return soon after their ctx ends, even if the
// server hangs. If ctx ended before the call, they return ErrUnavailable at once.
//
// A store neither renews leases nor records the holders in this process: the Client does both.
//
// A store that forwards to another store should embed a *[Full], which forwards all methods.
type Store interface {
	// Acquire acquires the name for r.Token. If the name is not free and r.Queue is set, it adds the
	// token to the wait queue.
	//
	// Acquire is idempotent by token. If the token already holds the name, the reply is Held, and a
	// remaining time shorter than r.TTL is raised to r.TTL. If the token already waits, it keeps
	// its queue entry, and the request is its heartbeat.
	//
	// Acquire returns at r.Until at the latest. A request that the server receives after r.Until
	// changes nothing, and Acquire returns ErrUnavailable.
	//
	// If the reply is Held, its fence is larger than each earlier fence on the name. If the token
	// repeats the request while it holds the name, its fence never becomes smaller.
	//
	// A request for several names is sent only to a [Grouper]. It acquires all names or none, in a
	// single step. It waits in all their queues with the same ticket. A release never grants a name to
	// a request for several names. Instead, when this request is first in the queue for the released
	// name, the store sends EventRetry. If the token held all names but lost some of them, the repeated
	// request releases the other names.
	Acquire(ctx context.Context, r AcquireRequest) (AcquireReply, error)

	// Cancel undoes an Acquire whose outcome is unknown or unwanted: afterwards the token neither
	// holds nor waits. If the token held the name, the name is granted to the next waiters. Here
	// r.Until is the limit for the Cancel: if the server receives the Cancel later, it does
	// nothing.
	Cancel(ctx context.Context, r AcquireRequest) error

	// Release ends the lease with r.Token. In the same atomic step it grants the name to the next
	// waiters with unexpired queue entries, as many as fit within the limit. It returns false if the
	// token did not hold the name.
	//
	// Without r.LastUse, a Release does nothing if the server receives it after r.Until: the token may
	// be in use for a new lease.
	//
	// With r.Reserve, the name stays unavailable, so Release grants nothing. It sends EventRetry to
	// the first waiter. The reply to this waiter's next request contains the time until the name is
	// free.
	Release(ctx context.Context, r ReleaseRequest) (bool, error)

	// Extend raises each lease's remaining time to its TTL, with as few round trips as possible. The
	// i-th result belongs to the i-th request: nil if the token held the name, and ErrLost if it
	// certainly did not. After any other error the outcome is unknown. Extend never shortens a lease,
	// and never restores an ended lease.
	Extend(ctx context.Context, requests []ExtendRequest) []error

	// Watch receives a client's events until ctx ends, and calls on(event) for each event. The calls
	// can come from several goroutines at once. Watch reconnects after a failure. After it connects or
	// reconnects, the first event is EventConnected. Events are hints: a lost event only adds latency.
	// Watch returns before ctx ends only if the store never sends events.
	//
	// A store may send its own requests during a Watch, such as pings. The function busy reports
	// whether the client holds or waits for any name. The store calls busy from time to time, from any
	// goroutine. While busy returns false, the store should send no requests of its own. Soon after
	// busy returns true again, the store should verify that events can arrive. A nil busy means always
	// busy.
	Watch(ctx context.Context, client string, busy func() bool, on func(Event)) error
}

// Time limits for late waiters: see AcquireRequest.Late.
const (
	LateAnswer   = WaiterTTL / 10 // a response to EventRetry within this time shows a good connection
	LatePatience = 3 * WaiterTTL  // a waiter that responds later is granted the name this long after it first reached the front of the queue
)

// An AcquireRequest is a request to hold a name. Each kind of lock is a weighted semaphore: a
// request takes Weight of Limit. A request fits if its own weight and all held weights add up to at
// most its own limit. If its weight equals its limit, the request is exclusive. A mutex takes 1 of
// 1, a reader 1 of Unlimited, and a writer Unlimited of Unlimited. A store does not distinguish
// writers from mutexes.
type AcquireRequest struct {
	Name    string
	With    []string      // further names, which the lease holds together and exclusively
	Token   string        // identifies the lease's owner
	Client  string        // the client whose Watch receives the events for this request
	Seq     uint64        // orders a client's requests that queue at the same instant
	TTL     time.Duration // how long the store keeps an unrenewed lease
	Weight  int           // how much the request takes from Limit
	Limit   int           // how much may be held together
	Queue   bool          // join the wait queue if the name is not free
	MinHold time.Duration // the name stays unavailable for at least this long, even if the owner crashes
	Until   time.Time     // the request does nothing after this instant, by this process's clock

	// Ticket is the ticket from the last reply to this request, or zero. Tickets order the wait
	// queue: the smallest is served first. If the token's queue entry is gone, for example after a
	// pause of the client, the store adds a new entry. The new entry has this ticket or a slightly
	// larger ticket, so the waiter keeps its position.
	Ticket uint64

	// Confirmed is when the client sent the last request that was answered with Ticket. No store
	// removes a queue entry within the HandoffTTL after this instant. If such an entry is missing,
	// the store has lost the whole queue. It should then add the entry again, and grant the name to
	// no waiter for about 2.5 s. In this time all waiters repeat their requests, and so return to
	// their positions. A store that cannot lose a queue can ignore Confirmed.
	Confirmed time.Time

	// Late is set if grants by a hand-off (a release that grants the name to the first waiter)
	// recently reached this client late or not at all. Another late grant would leave the name idle
	// for up to the HandoffTTL. So when a late waiter is first in the queue, the store sends
	// EventRetry instead of a grant. Until the waiter's next request, the store grants the name to
	// the waiters behind it, but keeps its queue entry.
	//
	// If the waiter's next request arrives within LateAnswer after EventRetry, the next hand-off
	// grants it the name. If its requests always arrive later, the store grants it the name when
	// LatePatience has passed since the waiter first reached the front of the queue.
	//
	// All requests for the same queue entry have the same Late. Late is false in requests with
	// further names. A store can ignore Late.
	Late bool

	// Vote is set only by a quorum: see Voter.
	Vote *Vote
}

// Exclusive reports whether the request excludes all other holders.
func (r AcquireRequest) Exclusive() bool { return r.Weight == r.Limit }

// Names returns all names in the request.
func (r AcquireRequest) Names() []string { return append([]string{r.Name}, r.With...) }

// HandoffTTL returns the first TTL for a lease from a hand-off (a release that grants the name to a
// waiter): TTL, but at most WaiterTTL, 5 s. It is short so that a crashed waiter does not block the
// others for a whole TTL. The holder's first renewal, in the background, raises it to TTL.
func (r AcquireRequest) HandoffTTL() time.Duration { return min(WaiterTTL, r.TTL) }

// An AcquireReply is the result of an Acquire or a Resize.
type AcquireReply struct {
	Held bool // the token holds the name

	// Fence is the new lease's fence, if Held. Otherwise it is at least as large as the fence of
	// each earlier lease on the name, or zero if the store does not know these fences.
	//
	// A Client compares it with an EventGranted: the event counts if it has the last reply's ticket
	// and a larger fence. After a lost reply, some stores can issue the same ticket twice for a
	// token. Such a store must not return zero, because an old event would then count for the new
	// queue entry.
	Fence uint64

	// The rest describes the wait, if not Held.
	Name      string        // with several names: a name that is not free
	Holder    string        // a holder's token; empty if nobody holds the name at this moment
	Reserved  bool          // the holder released its lease, but the name stays unavailable
	Remaining time.Duration // until the first holder expires; negative if it never does
	Ticket    uint64        // the queue entry's ticket; zero if not queued
	Position  int           // 1 is served next; zero if not queued; a store may stop counting after 100 waiters
	Poll      time.Duration // while another library holds the lock: the shortest pause between two requests, unless notified; otherwise zero

	Vote VoteReply // for a quorum: the reply to an Acquire with a Vote; otherwise zero
}

// NeverExpires reports whether the first holder stays without a time limit.
func (r AcquireReply) NeverExpires() bool { return r.Remaining < 0 }

// A ReleaseRequest ends a lease.
type ReleaseRequest struct {
	Name      string
	Token     string
	Fence     uint64        // the lease's fence; zero if unknown
	Reserve   time.Duration // end the lease, but keep the name unavailable for this long; zero: free the name at once
	Until     time.Time     // the request does nothing after this instant, by this process's clock; zero: the store sets a limit
	Unreserve bool          // end only a Reserve of this token's earlier release; do not end a lease

	// LastUse promises that no later Acquire uses this token. A release that arrives late can then end
	// no newer lease, so the server need not check Until.
	LastUse bool

	// Vote is set only by a quorum: see Voter.
	Vote *Vote
}

// An ExtendRequest extends a single lease. The store can record the lease's fence and client for
// later calls to Inspect and Revoke.
type ExtendRequest struct {
	Name   string
	Token  string
	Client string
	Fence  uint64        // zero if unknown
	TTL    time.Duration // raise a shorter remaining time to this
	Weight int           // how much of Limit the lease holds; zero if unknown, as after Client.Attach
	Limit  int
}
