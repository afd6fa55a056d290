package dibs

import "time"

// Hooks tell what happens, for logs, metrics and traces. Each may be nil and
// then costs nothing. No mutex is held while one runs, and no renewal waits for it:
// a hook may call the Client, Close included.
//
// Acquired, Released and Campaign run in the goroutine of the call that they
// concern, which goes on when they have returned. Waiting runs beside its call, which
// returns after it. All others run one after another, in the order in which things
// happened, in a goroutine that exists only while there is a hook to call. The hooks
// of one lease keep their order: Acquired first, Lost or Released last.
//
// So a slow hook delays other hooks. Events that wait for one that does not return
// are bounded: RenewFailed is queued once for each lease, and while 10,000 events
// wait no further one is queued, except Lost. Close waits one operation timeout for
// hooks, and not longer: those that are left run after it.
type Hooks struct {
	Acquired    func(Acquired)
	Waiting     func(Waiting)
	Renewed     func(Renewed)
	RenewFailed func(RenewFailed) // unknown, and tried again until the deadline
	Lost        func(Lost)
	Released    func(Freed)
	Degraded    func(Degraded)
	Campaign    func(Campaign)
}

// Acquired: a lease begins.
type Acquired struct {
	Name, Token string
	Fence       uint64
	Waited      time.Duration // since the call
	Pushed      bool          // by hand-off: the store granted it and told us
	Handoff     time.Duration // how long ago the store was asked to hand it on, zero if unknown
}

// Waiting: a call has joined a queue.
type Waiting struct {
	Name, Token string
	Holder      string
	Position    int    // 1 is served next
	Ticket      uint64 // who has the smaller one is served first
}

// Renewed: a batch of leases was renewed in one call of the store.
type Renewed struct {
	Leases int
	Took   time.Duration
}

// RenewFailed: the outcome of a renewal is unknown. A lease that was renewed, or has
// ended, before the hook could be called is left out.
type RenewFailed struct {
	Name, Token string
	Left        time.Duration // until the lease is lost
	Err         error
}

// Lost: a lease has ended before it was unlocked.
type Lost struct {
	Name, Token string
	Err         error // a *LostError
}

// Freed: a lease was unlocked. Err is what Unlock returned.
type Freed struct {
	Name, Token string
	Held        time.Duration
	Err         error
}

// Degraded: the store cannot push just now (Err says why), so waiters poll. It
// is told once for each time that it begins; Err is nil when it is over.
type Degraded struct {
	Err error
}

// Campaign: an Election's Run did not come to lead, and tries again.
type Campaign struct {
	Name  string
	Again time.Duration // until then
	Err   error
}
