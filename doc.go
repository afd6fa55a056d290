// Package dibs provides distributed locks. Call dibs on a name; while you hold it,
// nobody else does.
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
// A [Client] creates locks on one store. For Redis, import the package for your client
// library: goredisstore, rueidisstore or redigostore. Package memstore is a store for tests
// and single processes.
//
// The locks are [Mutex], [RWMutex], [Semaphore], [MultiMutex] (several names together),
// [Election] and [Once] (a periodic job). Each name has one FIFO wait queue. A held lock is
// a [Lease]. docs/guide.md helps to choose.
//
// # Guarantees
//
//   - Exclusion: on one store, the unexpired leases on a name never exceed its limit,
//     which is one for a mutex.
//   - The holder knows first: the context of a lost lease ends before the store can grant
//     the name to anyone else. [Lease.Err] also compares the clock itself.
//   - FIFO: waiters are served in the order in which the store received them. A release
//     grants the lock to the first waiter, or to those that fit, in the same atomic step.
//   - A call that fails or is cancelled leaves no lock behind.
//   - Fences only grow: each grant on a name has a larger number than the one before.
//
// A hand-off is a release that grants the lock to a waiter. The waiter is notified, and
// holds the lock already when the notification arrives.
//
// # Limits
//
// A process can be stopped between a check of its lease and a write, and then write with
// a lost lease. Only the written resource can prevent that: it must store the largest
// fence that it has seen and reject smaller ones.
//
// A Redis server that loses its data, or fails over to a replica that missed a write,
// loses leases. The holder detects this when its connection is back, and at its next
// renewal at the latest. docs/replicas.md lists the failovers in which this happens.
// docs/guarantees.md lists all guarantees, each with its test.
//
// # Time limits
//
// Three independent time limits apply to every lock:
//
//   - [Wait] is how long a call queues. By default it queues until its context ends.
//   - [TTL] is how long the store keeps a lease that is not renewed: a crash of the holder
//     blocks the others for this long. The default is 30 s.
//   - [Timeout] is how long one store operation may take, its retries included. The
//     default is 1 s.
//
// The Client renews leases by default, so TTL does not limit the work. [NoRenew] and
// [MaxHold] do.
//
// # Contexts
//
// The context given to Lock limits the waiting only; the lease lasts until Unlock. The
// context that Do passes to its function ends with the caller's context or with the
// lease, whichever ends first; its cause is [ErrLost] if the lease was lost. Only the end
// of the function releases the lock. [Lease.Unlock] takes no context: it has its own time
// limit, so a cancelled request cannot leak a lock.
//
// # Errors
//
// Use errors.Is with [ErrBusy], [ErrLost], [ErrReleased], [ErrUnavailable],
// [ErrWrongType], [ErrReentrant], [ErrInvalid] and [ErrClosed]. [BusyError], [LostError],
// [WrongTypeError] and [UnavailableError] have the details. If the context has ended before anything was
// sent to the store, the error is the cause of the context. If it ends during the wait, the
// error is ErrBusy and that cause. docs/guide.md says which error to handle first, and how.
package dibs
