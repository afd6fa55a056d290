// Package dibs provides distributed locks. Call dibs on a name; while you hold it, nobody else
// does.
//
//	locks := dibs.New(goredisstore.New(rdb))
//	defer locks.Close()
//
//	err := locks.Mutex("order:42").Do(ctx, func(ctx context.Context) error {
//		fence, err := dibs.Fence(ctx)
//		if err != nil {
//			return err
//		}
//		return repo.Save(ctx, order, fence)
//	}, dibs.Wait(3*time.Second))
//
// A [Client] creates locks on a store. For Redis, import the package for your client library:
// goredisstore, rueidisstore or redigostore. Packages pgstore and mysqlstore use a database,
// package localstore uses a file, and package quorum uses several independent servers. Package
// memstore is a store for tests and single processes.
//
// The locks are [Mutex], [RWMutex], [Semaphore], [MultiMutex] (several names together), [Election]
// and [Once] (a periodic job). Each name has a FIFO wait queue. A held lock is a [Lease].
// docs/guide.md helps to choose a lock.
//
// # Guarantees
//
//   - Exclusion: in a store, the unexpired leases on a name never exceed its limit. A mutex's limit
//     is a single lease.
//   - The holder knows first: a lost lease's context ends before the store can grant the name to
//     anyone else. [Lease.Err] compares the clock with the lease's deadline, so it does not depend
//     on a timer.
//   - FIFO: waiters are served in the order in which the store received them. A release grants the
//     lock to the first waiter, or to the first waiters that fit, in the same atomic step.
//   - A failed or cancelled call leaves no lock behind.
//   - Fences only grow: each grant on a name has a larger number than every earlier grant.
//
// A hand-off is a release that grants the lock to a waiter. The waiter is notified, and already
// holds the lock when the notification arrives.
//
// # Limits
//
// A process can be stopped between a check of its lease and a write, and then write with a lost
// lease. Only the written resource can prevent this: it must store the largest fence seen and
// reject smaller fences.
//
// A Redis server that loses its data, or fails over to a replica that missed a write, loses leases.
// The holder detects the loss when it reconnects, at the latest at its next renewal.
// docs/replicas.md lists the failovers with this effect. docs/guarantees.md lists all guarantees
// with their tests.
//
// # Time limits
//
// Three independent time limits apply to every lock:
//
//   - [Wait] limits how long a call queues. By default it queues until its context ends.
//   - [TTL] is how long the store keeps a lease without a renewal: a holder's crash blocks the
//     others for this long. The default is 30 s.
//   - [Timeout] limits a store operation, including its retries. The default is 1 s.
//
// The Client renews leases by default, so TTL does not limit the work. [NoRenew] and [MaxHold] do.
//
// # Contexts
//
// The context given to Lock limits only the wait; the lease lasts until Unlock. Do passes its
// function a context that ends with the caller's context or with the lease, whichever ends first.
// Its cause is [ErrLost] if the lease was lost. Do releases the lock only when the function ends,
// so the function should stop when its context ends. [Lease.Unlock] takes no context: a cancelled
// request cannot leak a lock.
//
// # Errors
//
// Use errors.Is with [ErrBusy], [ErrLost], [ErrReleased], [ErrUnavailable], [ErrWrongType],
// [ErrReentrant], [ErrInvalid] and [ErrClosed], and for a periodic job with [ErrSkipped].
// [BusyError], [LostError], [WrongTypeError] and [UnavailableError] contain the details. If the
// context ended before anything was sent to the store, the error is the context's cause. If the
// context ends during the wait, the error is ErrBusy together with that cause. docs/guide.md says
// which error to handle first, and how.
package dibs
