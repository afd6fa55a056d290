package ignorederr

import (
	"context"
	"errors"
	"sync"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func returned(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, work)
}

func assigned(ctx context.Context, locks *dibs.Client) {
	err := locks.Mutex("a").Do(ctx, work)
	log(err)
}

func passed(ctx context.Context, locks *dibs.Client) {
	log(locks.Mutex("a").Do(ctx, work))
}

func intended(ctx context.Context, locks *dibs.Client) {
	_ = locks.Mutex("a").Do(ctx, work)
}

func intendedInGoroutine(ctx context.Context, locks *dibs.Client) {
	go func() { _ = locks.Election("a").Run(ctx, work) }()
}

func intendedBoth(ctx context.Context, locks *dibs.Client) {
	_, _ = dibs.Call(ctx, locks.Mutex("a"), number)
}

func onlyTheError(ctx context.Context, locks *dibs.Client) error {
	_, err := dibs.Call(ctx, locks.Mutex("a"), number)
	return err
}

func comparedWithNil(ctx context.Context, locks *dibs.Client) {
	lease, _ := locks.Mutex("a").TryLock(ctx)
	if lease == nil {
		return
	}
	defer lease.Unlock()
}

func comparedTheOtherWay(ctx context.Context) {
	if lease, _ := dibs.LeaseOf(ctx, "a"); nil != lease {
		use(lease)
	}
}

func checkedFence(ctx context.Context, locks *dibs.Client) error {
	return locks.Mutex("a").Do(ctx, func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		return write(ctx, fence)
	})
}

func joined(ctx context.Context, locks *dibs.Client) error {
	a, errA := dibs.FenceOf(ctx, "a")
	b, errB := dibs.FenceOf(ctx, "b")
	return errors.Join(errA, errB, write(ctx, a), write(ctx, b))
}

func inGroup(ctx context.Context, locks *dibs.Client) (err error) {
	var group sync.WaitGroup
	group.Go(func() { err = locks.Mutex("a").Do(ctx, work) })
	group.Wait()
	return err
}

func leaseOfLock(ctx context.Context, locks *dibs.Client) error {
	lease, err := locks.Mutex("a").Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock()
	return write(lease.Context(), lease.Fence())
}

func yielded(ctx context.Context, lease *dibs.Lease) error {
	if err := lease.Yield(ctx); err != nil {
		return err
	}
	_ = lease.Extend(ctx, 1)
	return nil
}

func assertedInIf(ctx context.Context, locks *dibs.Client) bool {
	return locks.Holds(ctx, "a") == nil
}

func guardedInIf(ctx context.Context, locks *dibs.Client, store *memstore.Store) error {
	if err := store.Guard(ctx); err != nil {
		return err
	}
	return locks.Holds(ctx, "a")
}

// Another type's Do is not that of dibs.
type group struct{ dibs.Option }

func (group) Do(ctx context.Context, fn func(ctx context.Context) error) error { return fn(ctx) }

func otherDo(ctx context.Context, _ *dibs.Client) {
	group{}.Do(ctx, work)
}

func state(ctx context.Context, locks *dibs.Client) string {
	state, _ := locks.Inspect(ctx, "a")
	return state.Name
}

func released(lease *dibs.Lease, _ *dibs.Client) {
	defer lease.Unlock()
}
