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

// MaxReason is the longest reason of a revocation that a store accepts, in bytes.
const MaxReason = 256

// MaxWanted is to how many holders of one name a store sends EventWanted at least.
const MaxWanted = 64

// MaxNames is the largest number of names that one lease can hold.
const MaxNames = 100

// The bounds of a TTL. Below MinTTL, the safety margin for clocks and timers would be
// most of the lease. Above MaxTTL, a crash would block a name for more than a day.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

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

// A Store is where locks live. Every store passes the conformance suite, package
// storetest.
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
// ErrInvalid, and never ErrBusy. All methods are safe for concurrent use, and return soon
// after their ctx ends, whatever the server does.
//
// A store starts no renewals and keeps no record of the holders in this process: the
// Client does both.
type Store interface {
	// Acquire acquires the name for c.Token, or adds the token to the wait queue.
	//
	// It is idempotent by token. If the token holds the name already, the reply is Held,
	// and the remaining time is raised to c.TTL if it is shorter. If the token waits
	// already, it keeps its queue entry, and the request is its heartbeat. Acquire
	// neither grants nor queues after c.Until, even if the request is delivered later,
	// and it has returned by then. The fence in a reply is larger than each fence granted
	// before on that name.
	//
	// A request for several names acquires all of them or none, in one step, and waits in
	// all their queues with one ticket. If the token held all of them and has lost one,
	// it loses the others. No hand-off grants such a request. Instead, a release of one
	// of its names sends EventRetry to it if it is at the head of that queue.
	Acquire(ctx context.Context, c AcquireRequest) (AcquireReply, error)

	// Groups divides names into groups that one Acquire can take. The order of the groups
	// is the same for all clients of the store. A client that acquires several groups
	// does so in this order, so that no two clients deadlock.
	Groups(names []string) [][]string

	// Cancel undoes an Acquire whose outcome is unknown or unwanted: afterwards the token
	// neither holds nor waits. What it held is granted to the next waiters. Here c.Until
	// is the limit of the Cancel, not of the Acquire: it has no effect if it is delivered
	// later.
	Cancel(ctx context.Context, c AcquireRequest) error

	// Resize changes the weight of a lease, and raises its remaining time to c.TTL if it
	// is shorter. If the token does not hold the name, or if others hold too much, the
	// reply is not Held and nothing changes. A smaller weight makes room, which is
	// granted to the waiters that fit. It keeps what NotifyWanted has asked for.
	Resize(ctx context.Context, c AcquireRequest) (AcquireReply, error)

	// Revoke ends the lease that r describes, whoever the caller is, and grants the name
	// to the next waiters. It sends EventRevoked, with the reason, to the holder's client.
	// It returns false, and changes nothing, if the store has no such lease.
	Revoke(ctx context.Context, r RevokeRequest) (bool, error)

	// Release ends the lease of r.Token and grants the name to the first live waiters
	// that fit, in the same atomic step. It returns false if the token did not hold the
	// name. It has no effect if it is delivered after r.Until: the token may be in use
	// again by then, except with r.TokenEnds.
	Release(ctx context.Context, r ReleaseRequest) (bool, error)

	// Extend raises the remaining time of each lease to its TTL, in as few round trips as
	// possible. The i-th result is nil if the i-th token held the name, ErrLost if it
	// certainly did not, and any other error if the outcome is unknown. Extend never
	// restores a lease that has ended.
	Extend(ctx context.Context, requests []ExtendRequest) []error

	// NotifyWanted asks for an EventWanted: the store sends it to r.Client when a request
	// joins the empty wait queue of the name while r.Token holds it. If a request waits
	// already, NotifyWanted returns true, and no event need follow. It returns false if the
	// token does not hold the name. The store sends at most one event for each call. A lost
	// one costs latency only, because a Client repeats the call. Of many shared holders,
	// MaxWanted are notified at least.
	NotifyWanted(ctx context.Context, r WantedRequest) (wanted bool, err error)

	// Watch calls on with the events for one client until ctx ends, and then returns. It
	// may call on from several goroutines. It reconnects by itself, and calls on with
	// EventConnected each time events begin to flow. Events are hints: a lost one costs
	// latency only. Watch returns before ctx ends only if the store has no notifications
	// at all.
	Watch(ctx context.Context, client string, on func(Event)) error

	// Inspect returns the state of a name. If the key holds a value of another type, the
	// error is a WrongTypeError, which describes it.
	Inspect(ctx context.Context, name string) (State, error)

	// InspectAll returns the states of many names, in the order of the names. It needs as
	// few round trips as possible, and keeps the server busy for a few milliseconds at a
	// time at most. The states are not of one moment. A name whose key holds a value of
	// another type is no error here: its State has the description of the WrongTypeError.
	// Nor is a name that the user of the store may not read: its State has Err.
	// State.Fence may be zero, which means unknown. The fences of the holders are those of
	// Inspect.
	InspectAll(ctx context.Context, names []string) ([]State, error)

	// List returns the held names that match a glob (*, ?, [a-z], \ to quote), in no
	// order.
	List(ctx context.Context, pattern string) ([]string, error)
}

// An IdleWatcher is a Store whose Watch sends requests of its own, such as pings. A client does
// not need them while it holds and awaits nothing.
type IdleWatcher interface {
	// WatchWhile is Watch. While busy returns false, the store sends nothing for the client.
	// Soon after busy returns true again, the store verifies that events can arrive. It
	// calls busy from time to time, and from several goroutines.
	WatchWhile(ctx context.Context, client string, busy func() bool, on func(Event)) error
}

// WatchWhile calls WatchWhile of a store that has it, or else Watch.
func WatchWhile(ctx context.Context, s Store, client string, busy func() bool, on func(Event)) error {
	if idle, ok := s.(IdleWatcher); ok {
		return idle.WatchWhile(ctx, client, busy, on)
	}
	return s.Watch(ctx, client, on)
}

// An Announcer is a Store in which a silent waiter may block a name for seconds after it is
// found. The store cannot know at once whether it is dead.
type Announcer interface {
	// Announce says that the caller will acquire these names, of several groups, after a name
	// that it waits for. Meanwhile the store finds out which of their waiters are dead.
	// Announce neither acquires nor queues. It reports no error, because a lost announcement
	// costs latency only. A Client repeats it every 1.2 s.
	Announce(ctx context.Context, names []string)
}

// Announce calls Announce of a store that has it.
func Announce(ctx context.Context, s Store, names []string) {
	if a, ok := s.(Announcer); ok {
		a.Announce(ctx, names)
	}
}

// A FenceReserver is a Store that can reserve further fences for a lease.
type FenceReserver interface {
	// ReserveFences reserves r.Count fences for the lease of r.Token, which is exclusive. They
	// are the last r.Count up to the Last of the reply: larger than each fence granted on the
	// name before, and smaller than each granted later. Last is at least r.Least. Nothing else
	// changes: the lease keeps its TTL and its fence, with which Revoke ends it. If the token does not hold the name, the
	// reply is not Held.
	//
	// With r.Count zero it only makes sure that later fences are larger than r.Least. If a reply
	// is lost, the fences of that request are wasted.
	ReserveFences(ctx context.Context, r FenceRequest) (FenceReply, error)
}

// MaxFences is the largest number of fences that one request reserves.
const MaxFences = 1_000_000

// A FenceRequest reserves fences for a lease.
type FenceRequest struct {
	Name  string
	Token string // of the lease
	Count int    // at most MaxFences
	Least uint64 // the last fence is at least this; at most 2^53
}

// A FenceReply is the result of ReserveFences.
type FenceReply struct {
	Held bool   // the token holds the name
	Last uint64 // the last of the fences, if Held
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
}

// Exclusive reports whether the request tolerates no other holder.
func (c AcquireRequest) Exclusive() bool { return c.Weight == c.Limit }

// Names returns all names of the request.
func (c AcquireRequest) Names() []string { return append([]string{c.Name}, c.With...) }

// HandoffTTL returns the first TTL of a lease that a hand-off grants to this request. The
// first renewal, off the critical path, raises it to TTL. It is short so that a waiter
// that has crashed does not block the others for a whole TTL.
func (c AcquireRequest) HandoffTTL() time.Duration { return min(WaiterTTL, c.TTL) }

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
	Round     uint64        // of a quorum: the round of requests
}

// A WantedRequest asks the store to notify the holder of a lease of waiters.
type WantedRequest struct {
	Name   string
	Token  string // of the lease
	Client string // whose Watch receives the event
}

// A ReleaseRequest ends a lease.
type ReleaseRequest struct {
	Name      string
	Token     string
	Fence     uint64        // the fence of the lease; zero if unknown
	Reserve   time.Duration // keep the name unavailable for this long: its Holder is then Reserved
	Until     time.Time     // no effect after this instant, by this process's clock; zero: the store's own limit
	Unreserve bool          // end what an earlier release of this token has reserved, not a lease

	// TokenEnds means that nobody acquires with this token again. A late delivery then
	// finds nothing to release, so the store need not check Until where it is executed.
	TokenEnds bool
}

// A RevokeRequest says which lease to end: that with this fence, or if the fence is zero,
// that with this token. The token is for a lease whose fence the store does not have.
type RevokeRequest struct {
	Name   string
	Fence  uint64
	Token  string
	Reason string // for the holder: one line of at most MaxReason bytes; may be empty
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

// An EventKind is the kind of an Event.
type EventKind int

const (
	// EventGranted: Event.Token holds the name, because its queue entry with Event.Ticket
	// was served.
	EventGranted EventKind = iota + 1
	// EventRetry: the request with Event.Token should be sent again, because something
	// changed.
	EventRetry
	// EventRevoked: a lease with Event.Token was revoked, because of Event.Reason. Its
	// fence is at most Event.Fence, and a later lease with this token has a larger one.
	EventRevoked
	// EventWanted: a request waits for the name that Event.Token holds: see
	// Store.NotifyWanted.
	EventWanted
	// EventConnected: events flow from now on; earlier ones may be lost.
	EventConnected
	// EventDisconnected: events stopped, because of Event.Err. The store reconnects.
	EventDisconnected
	// EventFailover: another server has taken over and may have lost leases. Events flow
	// as before.
	EventFailover
)

// An Event is a notification that Watch delivers to a client.
type Event struct {
	Kind   EventKind
	Token  string
	Fence  uint64
	Fences uint64 // how many fences, up to Fence, belong to the grant; zero: not known, so only Fence does
	Ticket uint64
	Node   string        // for a vote request: see VoteReply
	Round  uint64        // of a quorum: the round in which it was granted
	Age    time.Duration // time since the grant was sent; zero if unknown
	Reason string        // of a revocation; may be empty
	Err    error
}

// A State is the state of a name at one moment.
type State struct {
	Name    string
	Holders []Holder // at most 100, those that expire first
	Holding int      // the number of all holders
	Waiters []Waiter // the first 100, in the order of service
	Waiting int      // the number of all waiters
	Fence   uint64   // no fence granted on this name is larger; of InspectAll, zero if unknown

	// Foreign is set if the lock key holds a value that dibs did not write, and nil in a
	// store that has no such values. If the value is a string, its only Holder has it as
	// Token: dibs waits for it, as for any holder. A value of another type is reported
	// by a WrongTypeError.
	Foreign *Foreign

	// Nodes are the states on the nodes of a quorum, in the order of the nodes. Other
	// stores have none.
	Nodes []NodeState

	// Err is why the state is not known: the user of the store may not read this name. Only
	// InspectAll sets it; then there is nothing else but the name.
	Err error
}

// A NodeState is the state of a name on one node of a quorum, or why it is not known.
type NodeState struct {
	State State
	Err   error
}

// A Holder holds a name.
type Holder struct {
	Token     string
	Label     string
	Kind      Kind          // empty if not known
	Owner     string        // of a foreign lock: the owner as its library writes it, without a secret; may be empty
	Weight    int           // zero: exclusive
	Limit     int           // how much may be held together; zero if not known
	Fence     uint64        // zero if the store does not have it
	Remaining time.Duration // negative: it never expires, so the lock is a foreign one
	Reserved  bool          // the lease was released, and the name stays unavailable; no renewal extends it
}

// A Waiter waits for a name.
type Waiter struct {
	Token  string
	Label  string
	Kind   Kind // empty if not known
	Weight int  // how much of Limit the request takes; equal to it: exclusive
	Limit  int
	Waited time.Duration
}
