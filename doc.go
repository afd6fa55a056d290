// Package dibs takes locks that many processes share. Call dibs on a name; while
// you hold it, nobody else does.
//
//	locks := dibs.New(goredisstore.New(rdb))
//	defer locks.Close()
//
//	err := locks.Mutex("order:42").Do(ctx, func(ctx context.Context) error {
//		return repo.Save(ctx, order, dibs.Fence(ctx))
//	}, dibs.Wait(3*time.Second))
//
// Beside [Mutex] there are [RWMutex], [Semaphore], several names at once
// ([Client.All]), [Election] and [Once]. They are one idea: a lease weighs something
// of what a name bears. docs/guide.md says which to choose.
//
// # What it promises
//
// Leases live in a [Store]: Redis (package redisstore and its adapters for
// go-redis, rueidis and redigo; docs/redis.md), or memory for tests and single
// processes (package memstore). On one store the unexpired leases on a name are
// never more than it bears: one of a mutex. Who holds a lease learns that it is
// lost before anyone else can have it: its context ends, and [Lease.Err] compares
// the clock itself. Waiters are served in the order in which the store saw them,
// and a release hands the lock to the first of them, or to those that fit, in the
// same step. A failed or cancelled call leaves no lock behind. Fences only grow.
//
// # What it cannot promise
//
// A process that is stopped between looking at the clock and writing may write
// with a lease that is over. Only the resource can refuse that, by remembering
// the largest fence it has seen. A Redis that loses its data, or fails over to a
// replica that missed a write, forgets the lease; its holder is told when the
// connection comes back, and at the next renewal at the latest. docs/replicas.md says
// which failovers that are, docs/guarantees.md has the whole list, with the test of
// each.
//
// # Three clocks
//
// [Wait] is how long to queue, [TTL] how long the store keeps a lease that nobody
// renews, [Timeout] how long one operation on the store may take. None stands in
// for another. Leases are renewed by default, so TTL does not bound the work;
// [NoRenew] and [MaxHold] do.
package dibs
