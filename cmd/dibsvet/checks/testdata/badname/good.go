package badname

import (
	"context"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func goodNames(ctx context.Context, locks *dibs.Client, name string, names []string) {
	locks.Mutex("a")
	locks.Mutex("a}b {c} d*")
	locks.Mutex("é")
	locks.Mutex(name)
	locks.Mutex(long[:512])
	locks.RWMutex("order:" + name)
	locks.All(names)
	locks.All([]string{"a", name})
	locks.All([]string{"a", "a"})
	locks.Attach(ctx, dibs.NewHandle("a", name))
	locks.Inspect(ctx, name)
	locks.List(ctx, "")
	locks.Revoke(ctx, "a", dibs.Holder{Fence: 1}, "")
	locks.Election("a").Leader(ctx)
	dibs.ParseOptions("ttl=20s wait=3s label=web attempts=5/200ms"[:8])
	dibs.ParseOptions("ttl=20s wait=3s label=web")
	dibs.ParseOptions("")
}

func goodNumbers(ctx context.Context, locks *dibs.Client, n int) {
	locks.Semaphore("a", 1)
	locks.Semaphore("a", 1<<31-1)
	locks.Semaphore("a", n).Permits(5).Lock(ctx)
	locks.Semaphore("a", 4).Permits(4).Lock(ctx)
	locks.Semaphore("a", 4).Permits(n).Lock(ctx)
	locks.Once("a", 10*time.Millisecond)
	locks.Once("a", 366*24*time.Hour, dibs.RetryFailed())
	locks.Once("a", time.Duration(n))
}

func goodOptions(d time.Duration, text string) []dibs.Option {
	return []dibs.Option{
		dibs.TTL(10 * time.Millisecond),
		dibs.TTL(24 * time.Hour),
		dibs.TTL(d),
		dibs.Timeout(time.Millisecond),
		dibs.MaxHold(0),
		dibs.MaxHold(10 * time.Millisecond),
		dibs.MinHold(0),
		dibs.MinHold(24 * time.Hour),
		dibs.Wait(0),
		dibs.Wait(d),
		dibs.Wait(time.Millisecond),
		dibs.Attempts(1, 0),
		dibs.Label(""),
		dibs.Label(longLabel[1:]),
		dibs.Label(text),
		dibs.OwnerToken("request-1"),
		dibs.OwnerToken(text),
		dibs.NoRenew(),
		dibs.Reentrant(),
		dibs.Observe(dibs.Hooks{}),
	}
}

func goodLevels(ctx context.Context, lease *dibs.Lease, options []dibs.Option) {
	locks := dibs.New(memstore.New(), dibs.Wait(time.Second), dibs.MaxHold(time.Minute))
	// The nearest level wins, and Wait and Attempts replace each other.
	locks.Mutex("a").Lock(ctx, dibs.Attempts(2, time.Second))
	locks.Mutex("a", dibs.Attempts(2, time.Second)).Lock(ctx, dibs.Wait(time.Second))
	// Those of outer levels are ignored by a Try call.
	locks.Mutex("a").TryLock(ctx)
	locks.Mutex("a", dibs.Wait(time.Second)).TryLock(ctx)
	locks.Once("a", time.Second).Do(ctx, nothing)
	// The call raises MaxHold.
	locks.Mutex("a", dibs.MinHold(time.Hour)).Lock(ctx, dibs.MaxHold(2*time.Hour))
	locks.Mutex("a").Lock(ctx, dibs.OwnerToken("request-1"))
	locks.Attach(ctx, dibs.NewHandle("a", "token"), dibs.MaxHold(time.Minute), dibs.NoRenew(), dibs.TTL(time.Minute))
	locks.Mutex("a").Lock(ctx, options...)
	locks.Mutex("a", dibs.MinHold(time.Minute), dibs.MaxHold(time.Minute))
	lease.Extend(ctx, 30*time.Second)
	dibs.New(memstore.New(), dibs.Observe(dibs.Hooks{Renewed: renewed, Degraded: degraded}))
	locks.Mutex("a").Lock(ctx, dibs.Observe(dibs.Hooks{Renewed: nil}), dibs.Option{})
	locks.Mutex("a").Lock(ctx, dibs.Observe(dibs.Hooks{AcquireStart: started}))
	locks.All([]string{"a"}, dibs.Wait(time.Second)).TryLock(ctx)
	lease.Yield(ctx, dibs.Wait(time.Second), dibs.TTL(time.Minute))
}

func started(ctx context.Context, _ dibs.AcquireStart) context.Context { return ctx }
