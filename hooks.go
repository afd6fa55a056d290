package dibs

import (
	"context"
	"time"
)

// Hooks are functions that the Client calls on events, for logs, metrics and traces. Each
// may be nil. Hooks of several levels add up: those given to New run first, then those of
// the lock, then those of the call.
//
// Each AcquireStart is followed by one AcquireEnd, with Queued between the two if the call
// joins a wait queue. No hook is called for a call that the Client rejects with ErrInvalid or
// ErrReentrant, or that uses a lease again (see Reentrant). A call that the store rejects, such
// as one with a name that this store cannot have, has both hooks, and AcquireEnd has the error.
//
// If AcquireEnd has no error, there is a lease. Lost or Released is its last event. A lease
// of Client.Attach has Lost and Released only.
//
// The contexts have the values of the call's context, and never end. AcquireStart is the
// exception: it receives the context of the call itself.
//
// No mutex is held while a hook runs, and renewals do not wait for it: a hook may call the
// Client, Close included. AcquireStart, AcquireEnd, Released and TermFailed run in the
// goroutine of the call that they concern, which continues when they have returned. Queued
// runs in a goroutine of its own; its call returns after it. All other hooks run one after
// another, in the order of the events, in a goroutine that exists only while there is a
// hook to call.
//
// So a slow hook delays other hooks only. The events that wait for a slow hook are
// bounded: RenewFailed is queued once for each lease, and while 10,000 events wait, no
// further event is queued except Lost. Close waits one operation timeout for hooks. Hooks
// that have not run by then run after Close has returned.
//
// A hook that panics or calls runtime.Goexit leaves no lease behind. If it runs in the
// goroutine of a call, the panic reaches the caller. A lease whose AcquireEnd hook does not
// return is unlocked, because no caller receives it. A panic of a hook in another goroutine
// ends the program, as any such panic.
type Hooks struct {
	// AcquireStart returns the context with which the call goes on, such as one with a
	// span. The store's client and the hooks below see its values, also in requests in the
	// background, such as a cancel. Renewals, which are for many leases, do not see them,
	// and neither do the function of Do and Lease.Context. Nil means ctx.
	AcquireStart func(ctx context.Context, e AcquireStart) context.Context
	Queued       func(ctx context.Context, e Queued)
	AcquireEnd   func(ctx context.Context, e AcquireEnd)
	RenewFailed  func(ctx context.Context, e RenewFailed)
	Lost         func(ctx context.Context, e Lost)
	Released     func(ctx context.Context, e Released)
	TermFailed   func(ctx context.Context, e TermFailed)

	// The events of these concern many leases, and their context has no values. Given to a lock or a
	// call, they are ErrInvalid: give them to New.
	Renewed  func(ctx context.Context, e Renewed)
	Degraded func(ctx context.Context, e Degraded)
}

// A LockInfo describes the call or the lease of an event.
type LockInfo struct {
	Client    string   // the identity of the Client: host:pid:random, with which its tokens begin
	Names     []string // several of a multi-lock, otherwise one; hooks must not change the slice
	Kind      Kind
	Token     Token // the owner token; empty in AcquireStart, and if the call sent nothing
	Label     string
	Exclusive bool // no other holder is possible; false for KindAttached, where it is not known
	Weight    int  // permits of a semaphore; 1 of 1 for a mutex; zero for KindAttached
	Limit     int  // permits of the whole semaphore; for readers and writers a very large number
}

// Name returns the first of the names, or "" if there is none.
func (i LockInfo) Name() string {
	if len(i.Names) == 0 {
		return ""
	}
	return i.Names[0]
}

// AcquireStart is the event of a call that begins.
type AcquireStart struct {
	LockInfo
	Try bool // the call does not wait
}

// Queued is the event of a call that has joined a wait queue.
type Queued struct {
	LockInfo
	Holder   Token  // of a holder; may be empty
	Position int    // 1 is served next; 101 may mean more (MariaDB, MySQL)
	Ticket   uint64 // waiters with a smaller ticket are served first

	Reserved     bool          // the holder has released its lease; MinHold keeps the name unavailable
	NeverExpires bool          // the holder is a lock of another library that lasts until it is released
	Remaining    time.Duration // until the holder's lease expires, unless it is renewed; zero if it never expires
}

// AcquireEnd is the event of a call that ends, with or without a lease.
type AcquireEnd struct {
	LockInfo
	Err    error         // why there is no lease; nil if there is one
	Waited time.Duration // since the call began
	Queued bool          // the call joined a wait queue

	// If Err is nil:
	Fence uint64

	// FirstFence is the first of the fences that belong to the lease: all from FirstFence to
	// Fence. A hand-off may leave several. Lease.ReserveFences adds others.
	FirstFence uint64

	TTL      time.Duration // how long the store keeps the lease without a renewal
	Notified bool          // the lease came from a hand-off, with a notification; of several slots of a cluster, one did
	Handoff  time.Duration // how long ago the hand-off was requested; zero if unknown
}

// Renewed is the event of a batch of leases that one store call has renewed.
type Renewed struct {
	Client   string // see LockInfo
	Leases   int
	Took     time.Duration
	Headroom float64 // of the lease that was nearest to its loss, the share of its time that was left: normally about 0.66; 0 is a loss
}

// RenewFailed is the event of a renewal whose outcome is unknown. It is repeated until the
// deadline. The event is dropped if the lease was renewed, or has ended, before the hook
// could be called.
type RenewFailed struct {
	LockInfo
	Left time.Duration // until the lease is lost
	Err  error
}

// Lost is the event of a lease that ended before it was unlocked. Client.Close ends leases,
// too: the Reason is ReasonClosed then.
type Lost struct {
	LockInfo
	Fence  uint64
	Held   time.Duration
	Reason Reason
	Err    error // a *LostError
}

// Released is the event of a lease that was unlocked. Err is the result of Unlock.
type Released struct {
	LockInfo
	Fence uint64
	Held  time.Duration
	Err   error
}

// Degraded is the event of a store that cannot notify waiters at the moment, so that they
// poll. The hook is called once when that begins, with the reason in Err, and once with a
// nil Err when it ends, at the latest with the Client.
type Degraded struct {
	Client string // see LockInfo
	Err    error
}

// TermFailed is the event of a campaign that failed and that Election.Run repeats.
type TermFailed struct {
	Client  string // see LockInfo
	Name    string
	RetryIn time.Duration // until the next campaign
	Err     error
}

// A hookChain is the hooks of one level, with a link to those of the outer level.
type hookChain struct {
	hooks *Hooks
	outer *hookChain
}

// each calls f with the hooks of each level, the outermost first.
func (c *hookChain) each(f func(hooks *Hooks)) {
	if c == nil {
		return
	}
	c.outer.each(f)
	f(c.hooks)
}
