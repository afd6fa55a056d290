//go:build unix

package storetest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/storetest"
)

// small is a store without optional interfaces, like all others in this file.
type small struct{ driver.Store }

func newSmall() driver.Store { return small{memstore.New()} }

// A store with five methods should pass. Its output should list the missing interfaces.
func TestASmallStorePasses(t *testing.T) {
	storetest.RunSynctest(t, func(*testing.T) driver.Store { return newSmall() })
	storetest.RunTicketsSynctest(t, func(*testing.T) driver.Store { return newSmall() })
}

func TestSmall(t *testing.T) {
	skipUnlessFailing(t)
	storetest.RunSynctest(t, func(*testing.T) driver.Store { return newSmall() })
}

func TestMissingInterfacesAreLogged(t *testing.T) {
	output, failed := runFailing(t, "TestSmall/cancel")
	if want := "lacks the optional interfaces Grouper, Resizer, Revoker, "; failed || !strings.Contains(output, want) {
		t.Errorf("failed %v, want output with %q:\n%s", failed, want, output)
	}
}

// silent sends no notifications.
type silent struct{ small }

func (silent) Watch(context.Context, string, func() bool, func(driver.Event)) error { return nil }

// A store without notifications also passes: its waiters poll.
func TestASilentStorePasses(t *testing.T) {
	storetest.RunSynctest(t, func(*testing.T) driver.Store { return silent{newSmall().(small)} })
}

// twoHolders grants each second holder its lease under another name.
type twoHolders struct{ small }

func (s twoHolders) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.small.Acquire(ctx, r)
	if err == nil && !reply.Held && !r.Queue {
		r.Name += "'"
		return s.small.Acquire(ctx, r)
	}
	return reply, err
}

// anyOwner lets each token release the lease.
type anyOwner struct{ small }

func (s anyOwner) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	probe := driver.AcquireRequest{Name: r.Name, Token: "probe", Client: "probe", TTL: driver.MinTTL, Weight: 1, Limit: 1, Until: r.Until}
	if reply, err := s.small.Acquire(ctx, probe); err == nil && reply.Holder != "" {
		r.Token = reply.Holder
	}
	return s.small.Release(ctx, r)
}

// silentGrants notifies nobody of a hand-off.
type silentGrants struct{ small }

func (s silentGrants) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return s.small.Watch(ctx, client, busy, func(e driver.Event) {
		if e.Kind != driver.EventGranted {
			on(e)
		}
	})
}

// oldFences returns the same fence for each grant.
type oldFences struct{ small }

func (s oldFences) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.small.Acquire(ctx, r)
	if reply.Held {
		reply.Fence = 7
	}
	return reply, err
}

// restores restores a lost lease for its token.
type restores struct{ small }

func (s restores) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := s.small.Extend(ctx, requests)
	for i, r := range requests {
		again := driver.AcquireRequest{Name: r.Name, Token: r.Token, Client: "restores", TTL: r.TTL, Weight: 1, Limit: 1, Until: driver.DeadlineOf(ctx)}
		if reply, err := s.small.Acquire(ctx, again); errs[i] != nil && err == nil && reply.Held {
			errs[i] = nil
		}
	}
	return errs
}

// enters grants the name to each request that does not queue, beside its holder.
type enters struct{ *driver.Full }

func (s enters) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	reply, err := s.Store.Acquire(ctx, r)
	if err == nil && !reply.Held && !r.Queue {
		r.Name += "'"
		return s.Store.Acquire(ctx, r)
	}
	return reply, err
}

func TestHistoryOfEnters(t *testing.T) {
	skipUnlessFailing(t)
	storetest.RunHistory(t, enters{driver.Complete(memstore.New())}, 1, 1000)
}

// Random operations should be consistent on a correct store, and not on an incorrect store. A small
// store lacks the needed interfaces.
func TestRunHistory(t *testing.T) {
	t.Run("right", func(t *testing.T) { storetest.RunHistory(t, memstore.New(), 1, 1000) })
	t.Run("wrong", func(t *testing.T) {
		if output, failed := runFailing(t, "TestHistoryOfEnters"); !failed || !strings.Contains(output, "seed 1: ") {
			t.Errorf("failed %v:\n%s", failed, output)
		}
	})
	t.Run("small", func(t *testing.T) {
		storetest.RunHistory(t, newSmall(), 1, 1000)
		t.Error("not skipped")
	})
}

// keepsCancelled forgets to cancel.
type keepsCancelled struct{ small }

func (keepsCancelled) Cancel(context.Context, driver.AcquireRequest) error { return nil }

// smallBugs are faults of small stores, with the case for finding each.
var smallBugs = map[string]struct {
	open  func() driver.Store
	found string
}{
	"two holders":     {func() driver.Store { return twoHolders{newSmall().(small)} }, "exclusion"},
	"any owner":       {func() driver.Store { return anyOwner{newSmall().(small)} }, "owner only"},
	"silent grants":   {func() driver.Store { return silentGrants{newSmall().(small)} }, "one grant"},
	"old fences":      {func() driver.Store { return oldFences{newSmall().(small)} }, "fences grow"},
	"restores":        {func() driver.Store { return restores{newSmall().(small)} }, "extend"},
	"keeps cancelled": {func() driver.Store { return keepsCancelled{newSmall().(small)} }, "cancel"},
}

func TestFaultsOfASmallStoreAreFound(t *testing.T) {
	for name, bug := range smallBugs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if output, failed := runFailing(t, "TestSmallBug/"+name+"/"+bug.found); !failed {
				t.Errorf("not found:\n%s", output)
			}
		})
	}
}

func TestSmallBug(t *testing.T) {
	skipUnlessFailing(t)
	for name, bug := range smallBugs {
		t.Run(name, func(t *testing.T) {
			storetest.RunSynctest(t, func(*testing.T) driver.Store { return bug.open() })
		})
	}
}
