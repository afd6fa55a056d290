// Package invalidstore tests stores that were made of nothing, of an unsupported client, or not by
// their constructor.
package invalidstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Check checks that each call of a store returns ErrInvalid with a text that names a constructor or
// a reason. It also checks that a client on the store does not panic in the background.
func Check(t *testing.T, s driver.Store, named string) {
	t.Helper()
	want := func(verb string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), named) || !strings.HasPrefix(err.Error(), "dibs: ") {
			t.Errorf("%s: %v; want ErrInvalid of dibs that names %s", verb, err, named)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	full := driver.Complete(s)
	acquire := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Until: time.Now().Add(time.Second)}
	_, err := full.Acquire(ctx, acquire)
	want("acquire", err)
	want("cancel", full.Cancel(ctx, acquire))
	_, err = full.Release(ctx, driver.ReleaseRequest{Name: "n", Token: "t", Until: acquire.Until})
	want("release", err)
	_, err = full.Release(ctx, driver.ReleaseRequest{Name: "n", Token: "t"})
	want("release without a time limit", err)
	want("extend", full.Extend(ctx, []driver.ExtendRequest{{Name: "n", Token: "t", TTL: time.Minute}})[0])
	_, err = full.Resize(ctx, acquire)
	want("resize", err)
	_, err = full.Revoke(ctx, driver.RevokeRequest{Name: "n", Fence: 1, Reason: "test"})
	want("revoke", err)
	_, err = full.NotifyWanted(ctx, driver.WantedRequest{Name: "n", Token: "t", Client: "c"})
	want("notify wanted", err)
	_, err = full.Inspect(ctx, "n")
	want("inspect", err)
	_, err = full.InspectAll(ctx, []string{"n"})
	want("inspect all", err)
	_, err = full.List(ctx, "*")
	want("list", err)
	if full.Has("FenceReserver") {
		_, err = full.ReserveFences(ctx, driver.FenceRequest{Name: "n", Token: "t", Count: 1})
		want("reserve fences", err)
	}
	if groups := full.Groups([]string{"n"}); len(groups) != 1 {
		t.Errorf("groups %v, want one", groups)
	}
	watching, end := context.WithTimeout(ctx, 10*time.Millisecond)
	defer end()
	_ = full.Watch(watching, "c", nil, func(e driver.Event) { t.Errorf("event %+v", e) })

	locks := dibs.New(s)
	_, err = locks.Mutex("n").Lock(ctx) // it waits, and watches
	want("Lock", err)
	_, err = locks.RWMutex("n").Reader().TryLock(ctx)
	want("TryLock of a reader", err)
	_, err = locks.Semaphore("n", 2).Permits(1).Lock(ctx)
	want("Lock of a permit", err)
	_, err = locks.Inspect(ctx, "n")
	want("Inspect", err)
	want("Check", locks.Check(ctx))
	if err := locks.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
