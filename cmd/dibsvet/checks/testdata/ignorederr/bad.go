// Package ignorederr contains errors that a program does not use.
package ignorederr

import (
	"context"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
	"github.com/dibslock/dibs/memstore"
)

func work(ctx context.Context) error            { return ctx.Err() }
func write(ctx context.Context, f uint64) error { return ctx.Err() }
func number(ctx context.Context) (int, error)   { return 1, ctx.Err() }
func use(lease *dibs.Lease, _ ...*dibs.Lease)   {}
func log(err error)                             {}

func statement(ctx context.Context, locks *dibs.Client) {
	locks.Mutex("a").Do(ctx, work) // want `the error of Do is not used: without it nobody notices that the function did not run, or ran without the lock`
}

func job(ctx context.Context, locks *dibs.Client) {
	locks.Once("a", time.Hour).Do(ctx, work) // want `the error of Do is not used`
}

func several(ctx context.Context, locks *dibs.Client) {
	locks.All([]string{"a", "b"}).Do(ctx, work, dibs.Wait(0)) // want `the error of Do is not used`
}

func interfaceOfDibs(ctx context.Context, lock dibs.Doer) {
	defer lock.Do(ctx, work) // want `the error of Do is not used`
}

func ofCohort(ctx context.Context, locks *dibs.Client) {
	cohort.New(locks.Mutex("a")).Do(ctx, work) // want `the error of Do is not used`
}

func leader(ctx context.Context, locks *dibs.Client) {
	go locks.Election("a").Run(ctx, work) // want `the error of Run is not used`
}

func result(ctx context.Context, locks *dibs.Client) int {
	n, _ := dibs.Call(ctx, locks.Mutex("a"), number) // want `the error of Call is not used`
	return n
}

func noResult(ctx context.Context, locks *dibs.Client) {
	dibs.Call(ctx, locks.RWMutex("a").Reader(), number) // want `the error of Call is not used`
}

func fence(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		fence, _ := dibs.Fence(ctx) // want `the error of Fence is not used: without a fence the number is 0`
		return write(ctx, fence)
	})
}

func fenceOf(ctx context.Context, locks *dibs.Client) error {
	var fence, _ = dibs.FenceOf(ctx, "a") // want `the error of FenceOf is not used`
	return write(ctx, fence)
}

func fences(ctx context.Context, lease *dibs.Lease) error {
	first, _ := lease.ReserveFences(ctx, 2) // want `the error of ReserveFences is not used`
	return write(ctx, first)
}

func lease(ctx context.Context, locks *dibs.Client) error {
	lease, _ := locks.Mutex("a").Lock(ctx) // want `the error of Lock is not used: without a lease the result is nil, and nothing holds the lock`
	defer lease.Unlock()
	return write(ctx, lease.Fence())
}

func try(ctx context.Context, locks *dibs.Client) {
	lease, _ := locks.Semaphore("a", 4).Permits(2).TryLock(ctx) // want `the error of TryLock is not used`
	use(lease)
}

func term(ctx context.Context, locks *dibs.Client) error {
	term, _ := locks.Election("a").Campaign(ctx) // want `the error of Campaign is not used`
	return term.Unlock()
}

func attached(ctx context.Context, locks *dibs.Client, handle dibs.Handle) {
	lease, _ := locks.Attach(ctx, handle) // want `the error of Attach is not used`
	use(lease)
}

func ofContext(ctx context.Context) {
	lease, _ := dibs.LeaseOf(ctx, "a") // want `the error of LeaseOf is not used`
	lease.Yield(ctx)                   // want `the error of Yield is not used: after it the lock is not held any more`
}

func changed(ctx context.Context, lease *dibs.Lease) {
	lease.Extend(ctx, time.Minute) // want `the error of Extend is not used: after it the lease is as before, or lost`
	lease.Downgrade(ctx)           // want `the error of Downgrade is not used`
	lease.TryUpgrade(ctx)          // want `the error of TryUpgrade is not used`
}

func asserted(ctx context.Context, locks *dibs.Client) {
	locks.Holds(ctx, "a") // want `the error of Holds is not used: only the error says that the lock is not held`
}

func guarded(ctx context.Context, store *memstore.Store) {
	store.Guard(ctx) // want `the error of Guard is not used`
}
