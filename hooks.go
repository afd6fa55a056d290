package dibs

import (
	"context"
	"time"
)

// Hooks are functions the Client calls on events, for logs, metrics and traces. Each can be nil.
// Hooks given to New, to a lock and to a call add up, and run in this order.
//
// Each AcquireStart is followed by an AcquireEnd, with Queued in between if the call joins a wait
// queue. After an AcquireEnd without an error there is a lease, whose last event is Lost or
// Released. A lease from Client.Attach causes neither AcquireStart nor AcquireEnd, but its last
// event is also Lost or Released.
//
// No hook is called for a call that the Client rejects with ErrInvalid or ErrReentrant, or that
// uses a lease again (see Reentrant). If the store rejects the call, for example its name,
// AcquireStart and AcquireEnd are called, and the event AcquireEnd contains the error.
//
// AcquireStart receives the call's context itself. The contexts of the other hooks carry its
// values, but never end.
//
// No mutex is held while a hook runs, and renewals do not wait for it. So a hook can call the
// Client, including Close. AcquireStart, AcquireEnd, Released and TermFailed run in their call's
// goroutine, and the call continues when they return. Queued runs in its own goroutine, and the
// call waits for it before returning. All other hooks run one after another, in the order of the
// events, in a goroutine that exists only while hooks are queued.
//
// A slow hook can delay its call and other hooks, but nothing more. The queue of hooks is bounded.
// It contains at most one RenewFailed per lease. While 10,000 events wait, new Renewed, RenewFailed
// and Degraded events are dropped. Close waits at most one operation timeout for queued hooks; the
// remaining hooks run after Close returned.
//
// A hook that panics or calls runtime.Goexit leaves no lease behind. If AcquireEnd panics or exits,
// the lease is unlocked, because no caller receives it. In a call's goroutine, the panic reaches
// the caller. In another goroutine, the panic ends the program, as any such panic does.
type Hooks struct {
	// AcquireStart returns the context for the rest of the call, for example with a span. Nil means
	// ctx. Its values are visible to the Redis or database client and to the hooks below, also in
	// background requests, for example after a cancelled call. Renewals do not receive these
	// values, because a renewal serves many leases. Do's function and Lease.Context do not receive
	// them either.
	AcquireStart func(ctx context.Context, e AcquireStart) context.Context
	Queued       func(ctx context.Context, e Queued)
	AcquireEnd   func(ctx context.Context, e AcquireEnd)
	RenewFailed  func(ctx context.Context, e RenewFailed)
	Lost         func(ctx context.Context, e Lost)
	Released     func(ctx context.Context, e Released)
	TermFailed   func(ctx context.Context, e TermFailed)

	// Renewed and Degraded concern many leases, so their contexts carry no values. They should be
	// given to New: given to a lock or a call, they are ErrInvalid.
	Renewed  func(ctx context.Context, e Renewed)
	Degraded func(ctx context.Context, e Degraded)
}

// A LockInfo describes an event's call or lease.
type LockInfo struct {
	Client    string   // the Client's identity, host:pid:random, with which its tokens begin
	Names     []string // several for a multi-lock, otherwise one; hooks must not change the slice
	Kind      Kind
	Token     Token // the owner token; empty in AcquireStart, and if the call sent nothing
	Label     string
	Exclusive bool // no other holder is possible; false for KindAttached, where it is unknown
	Weight    int  // requested share of Limit: a semaphore's permits, or 1 of 1 for a mutex; zero for KindAttached
	Limit     int  // all the semaphore's permits; a very large number for readers and writers
}

// Name returns the first name, or "" if there is none.
func (i LockInfo) Name() string {
	if len(i.Names) == 0 {
		return ""
	}
	return i.Names[0]
}

// AcquireStart is the event for a starting call.
type AcquireStart struct {
	LockInfo
	Try bool // the call does not wait
}

// Queued is the event for a call that joined a wait queue.
type Queued struct {
	LockInfo
	Holder   Token  // a holder; may be empty
	Position int    // 1 is served next; on MariaDB and MySQL, 101 means 101 or more
	Ticket   uint64 // waiters with a smaller ticket are served first

	Reserved     bool          // the holder released its lease; MinHold keeps the name unavailable
	NeverExpires bool          // the holder is another library's lock, which lasts until released
	Remaining    time.Duration // until the holder's lease expires unless renewed; zero if it never expires
}

// AcquireEnd is the event for the end of a call, with or without a lease.
type AcquireEnd struct {
	LockInfo
	Err    error         // why there is no lease; otherwise nil
	Waited time.Duration // since the call began
	Queued bool          // the call joined a wait queue

	// Fence and the fields below are set if Err is nil.
	Fence uint64

	// FirstFence is the lease's smallest fence: all fences from FirstFence to Fence belong to the
	// lease. A hand-off (a release that grants the lock to the next waiter) can grant several
	// fences at once; otherwise FirstFence equals Fence. The fences that Lease.ReserveFences
	// returns later are larger than Fence.
	FirstFence uint64

	TTL      time.Duration // how long the store keeps the lease without a renewal
	Notified bool          // a hand-off's notification granted the lease; for names in several cluster slots, some of them
	Handoff  time.Duration // from the hand-off to the arrival of its notification; zero if unknown
}

// Renewed is the event for a batch of leases renewed in a single store call.
type Renewed struct {
	Client   string // see LockInfo
	Leases   int    // leases in the batch
	Took     time.Duration
	Headroom float64 // remaining time divided by TTL, for the lease with the least: normally about 0.66; 0 is a loss
}

// RenewFailed is the event for a renewal with an unknown outcome. It repeats, with each attempt to
// renew, until the lease's deadline. If the lease was renewed or ended before the hook could be
// called, the event is dropped.
type RenewFailed struct {
	LockInfo
	Left time.Duration // until the lease is lost
	Err  error
}

// Lost is the event for a lease that ended before its Unlock. Client.Close also ends leases, with
// ReasonClosed.
type Lost struct {
	LockInfo
	Fence  uint64
	Held   time.Duration // since the caller received the lease
	Reason Reason
	Err    error // a *LostError
}

// Released is the event for an unlocked or detached lease. Err is the result.
type Released struct {
	LockInfo
	Fence uint64
	Held  time.Duration // since the caller received the lease
	Err   error
}

// Degraded is the event for a store that cannot notify waiters at the moment, so they poll. The
// hook is called when this state begins, with the reason in Err. It is called again with a nil Err
// when the state or the Client ends.
type Degraded struct {
	Client string // see LockInfo
	Err    error
}

// TermFailed is the event for a failed campaign that Election.Run will repeat.
type TermFailed struct {
	Client  string // see LockInfo
	Name    string
	RetryIn time.Duration // until the next campaign
	Err     error
}

// A hookChain contains a level's hooks, linked to the outer level's.
type hookChain struct {
	hooks *Hooks
	outer *hookChain
}

// each calls f with each level's hooks, the outermost first.
func (c *hookChain) each(f func(hooks *Hooks)) {
	if c == nil {
		return
	}
	c.outer.each(f)
	f(c.hooks)
}
