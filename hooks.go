package dibs

import "time"

// Hooks are functions that the Client calls on events, for logs, metrics and traces. Each
// may be nil. No mutex is held while a hook runs, and renewals do not wait for it: a hook
// may call the Client, Close included.
//
// Acquired, Released and Campaign run in the goroutine of the call that they concern,
// which continues when they have returned. Waiting runs in a goroutine of its own; its
// call returns after it. All other hooks run one after another, in the order of the
// events, in a goroutine that exists only while there is a hook to call. The hooks of one
// lease keep their order: Acquired first, Lost or Released last.
//
// So a slow hook delays other hooks only. The events that wait for a slow hook are
// bounded: RenewFailed is queued once for each lease, and while 10,000 events wait, no
// further event is queued except Lost. Close waits one operation timeout for hooks. Those
// that are left run after it.
type Hooks struct {
	Acquired    func(Acquired)
	Waiting     func(Waiting)
	Renewed     func(Renewed)
	RenewFailed func(RenewFailed) // the outcome is unknown; the renewal is repeated until the deadline
	Lost        func(Lost)
	Released    func(Freed)
	Degraded    func(Degraded)
	Campaign    func(Campaign)
}

// Acquired is the event of a new lease.
type Acquired struct {
	Name, Token string
	Fence       uint64
	Waited      time.Duration // since the call began
	Pushed      bool          // the lease came from a hand-off, with a notification
	Handoff     time.Duration // how long ago the hand-off was requested; zero if unknown
}

// Waiting is the event of a call that has joined a wait queue.
type Waiting struct {
	Name, Token string
	Holder      string
	Position    int    // 1 is served next
	Ticket      uint64 // waiters with a smaller ticket are served first
}

// Renewed is the event of a batch of leases that one store call has renewed.
type Renewed struct {
	Leases int
	Took   time.Duration
}

// RenewFailed is the event of a renewal whose outcome is unknown. It is dropped if the
// lease was renewed, or has ended, before the hook could be called.
type RenewFailed struct {
	Name, Token string
	Left        time.Duration // until the lease is lost
	Err         error
}

// Lost is the event of a lease that ended before it was unlocked.
type Lost struct {
	Name, Token string
	Err         error // a *LostError
}

// Freed is the event of a lease that was unlocked. Err is the result of Unlock.
type Freed struct {
	Name, Token string
	Held        time.Duration
	Err         error
}

// Degraded is the event of a store that cannot notify waiters at the moment, so that they
// poll. The hook is called once when that begins, with the reason in Err, and once with a
// nil Err when it ends.
type Degraded struct {
	Err error
}

// Campaign is the event of a campaign that failed and that Election.Run repeats.
type Campaign struct {
	Name  string
	Again time.Duration // time until the next campaign
	Err   error
}
