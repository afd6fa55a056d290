// Package invalidstore tests stores that were made of nothing, or not by their constructor.
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

// Check checks that each call of a store returns ErrInvalid with a text that names the constructor, and
// that a client on it does not panic in the background.
func Check(t *testing.T, s driver.Store, constructor string) {
	t.Helper()
	want := func(verb string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), constructor) {
			t.Errorf("%s: %v; want ErrInvalid that names %s", verb, err, constructor)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	full := driver.Complete(s)
	acquire := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Until: time.Now().Add(time.Second)}
	_, err := full.Acquire(ctx, acquire)
	want("acquire", err)
	want("cancel", full.Cancel(ctx, acquire))
	_, err = full.Release(ctx, driver.ReleaseRequest{Name: "n", Token: "t", Until: acquire.Until})
	want("release", err)
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
	want("Check", locks.Check(ctx))
	if err := locks.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
