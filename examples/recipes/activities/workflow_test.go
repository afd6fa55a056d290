package activities

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
)

// payments lists the paid orders, with each payment's fence.
type payments struct {
	mu     sync.Mutex
	orders []string
	fences []uint64
}

func (p *payments) pay(_ context.Context, order string, fence uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orders = append(p.orders, order)
	p.fences = append(p.fences, fence)
	return nil
}

// A run is a workflow. It has its own workers, which meet other runs in the store.
type run struct {
	*testsuite.TestWorkflowEnvironment
	steps []string // the completed activities
}

func newRun(t *testing.T, store *memstore.Store, pay func(ctx context.Context, order string, fence uint64) error) *run {
	var suite testsuite.WorkflowTestSuite
	r := &run{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	awaitSubscription(t, locks, store)
	r.RegisterActivity(&Activities{Locks: locks, Pay: pay})
	r.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		r.steps = append(r.steps, info.ActivityType.Name)
	})
	return r
}

// awaitSubscription returns when the client is notified of revocations: a waiter waits for that.
func awaitSubscription(t *testing.T, locks *dibs.Client, store *memstore.Store) {
	t.Helper()
	other := dibs.New(store)
	defer other.Close()
	lease, err := other.Mutex("other").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Unlock()
	if _, err := locks.Mutex("other").Lock(t.Context(), dibs.Wait(time.Millisecond)); !errors.Is(err, dibs.ErrBusy) {
		t.Fatal(err)
	}
}

// wantFree fails the test if the order is locked.
func wantFree(t *testing.T, store *memstore.Store, name string) {
	t.Helper()
	state, err := store.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Holders) != 0 {
		t.Errorf("%s is held: %+v", name, state.Holders)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	store, paid := memstore.New(), &payments{}
	r := newRun(t, store, paid.pay)
	r.ExecuteWorkflow(Order, "42", ttl)
	if err := r.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"Acquire", "Charge", "Extend", "Extend", "Extend", "Release"}; !slices.Equal(r.steps, want) {
		t.Errorf("activities %v, want %v", r.steps, want)
	}
	if len(paid.fences) != 1 || paid.fences[0] == 0 {
		t.Errorf("paid with the fences %d", paid.fences)
	}
	wantFree(t, store, "order:42")
}

// Acquire waits for its turn. Nobody extends the lock until the next activity, so it must
// have the whole TTL, also after a hand-off.
func TestAcquireWaits(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	first, err := locks.Mutex("order:42").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	go func() { released <- errors.Join(awaitWaiter(t.Context(), store), first.Unlock()) }()
	held, err := (&Activities{Locks: locks}).Acquire(t.Context(), "order:42")
	if err := errors.Join(err, <-released); err != nil {
		t.Fatal(err)
	}
	lease, err := locks.Attach(t.Context(), held, dibs.NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	if lease.Fence() <= first.Fence() {
		t.Errorf("fence %d, want more than %d", lease.Fence(), first.Fence())
	}
	state, err := store.Inspect(t.Context(), "order:42")
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Holders) != 1 || state.Holders[0].Remaining < ttl-time.Minute {
		t.Errorf("held by %+v, want one holder with a TTL of %v", state.Holders, ttl)
	}
}

// awaitWaiter returns when somebody waits for the order.
func awaitWaiter(ctx context.Context, store *memstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		state, err := store.Inspect(ctx, "order:42")
		if err != nil || len(state.Waiters) > 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("nobody waits")
		case <-time.After(time.Millisecond):
		}
	}
}

// A step whose lock is lost ends, and is not repeated.
func TestLockLost(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	attempts := 0
	r := newRun(t, store, func(ctx context.Context, _ string, fence uint64) error {
		attempts++
		if revoked, err := locks.Revoke(ctx, "order:42", dibs.Holder{Fence: fence}, "test"); !revoked || err != nil {
			t.Errorf("revoked: %v, %v", revoked, err)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	r.ExecuteWorkflow(Order, "42", time.Hour)
	var failure *temporal.ApplicationError
	if err := r.GetWorkflowError(); !errors.As(err, &failure) || failure.Type() != "LockLost" || !failure.NonRetryable() {
		t.Errorf("got %v, want LockLost, which is not repeated", err)
	}
	if attempts != 1 {
		t.Errorf("%d attempts, want 1", attempts)
	}
	if want := []string{"Acquire", "Charge", "Release"}; !slices.Equal(r.steps, want) {
		t.Errorf("activities %v, want %v", r.steps, want)
	}
}

// A step that fails for another reason is repeated under the same lock.
func TestStepIsRepeated(t *testing.T) {
	t.Parallel()
	store, paid := memstore.New(), &payments{}
	attempts := 0
	r := newRun(t, store, func(ctx context.Context, order string, fence uint64) error {
		_ = paid.pay(ctx, order, fence)
		if attempts++; attempts == 1 {
			return errors.New("the bank is closed")
		}
		return nil
	})
	r.ExecuteWorkflow(Order, "42", time.Duration(0))
	if err := r.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if f := paid.fences; len(f) != 2 || f[0] != f[1] {
		t.Errorf("fences %d, want the same one twice", f)
	}
}

// A cancelled workflow releases its lock.
func TestCancel(t *testing.T) {
	t.Parallel()
	store, paid := memstore.New(), &payments{}
	r := newRun(t, store, paid.pay)
	r.RegisterDelayedCallback(r.CancelWorkflow, time.Minute)
	r.ExecuteWorkflow(Order, "42", time.Hour)
	if err := r.GetWorkflowError(); !temporal.IsCanceledError(err) {
		t.Errorf("got %v, want that the workflow was cancelled", err)
	}
	if len(paid.orders) != 1 {
		t.Errorf("paid %v", paid.orders)
	}
	wantFree(t, store, "order:42")
}

// The lock should outlive the worker that acquired it, and each worker that used it.
func TestWorkersStop(t *testing.T) {
	t.Parallel()
	store, paid := memstore.New(), &payments{}
	onOneWorker := func(activity func(a *Activities) error) {
		t.Helper()
		locks := dibs.New(store)
		err := activity(&Activities{Locks: locks, Pay: paid.pay})
		if err := errors.Join(err, locks.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var held dibs.Handle
	onOneWorker(func(a *Activities) (err error) {
		held, err = a.Acquire(t.Context(), "order:42")
		return err
	})
	onOneWorker(func(a *Activities) error { return a.Charge(t.Context(), held, "42") })
	onOneWorker(func(a *Activities) error { return a.Extend(t.Context(), held) })
	onOneWorker(func(a *Activities) error { return a.Release(t.Context(), held) })
	wantFree(t, store, "order:42")
}

// An unanswered release should be repeated. The second attempt finds nothing to release.
func TestReleaseTwice(t *testing.T) {
	t.Parallel()
	locks := dibs.New(memstore.New())
	t.Cleanup(func() { locks.Close() })
	a := &Activities{Locks: locks}
	held, err := a.Acquire(t.Context(), "order:42")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Release(t.Context(), held); err != nil {
			t.Error(err)
		}
	}
}
