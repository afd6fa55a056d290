package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
)

func TestTwoPayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { checkTwoPayers(t, "") })
}

func TestTwoPayersOnRedis(t *testing.T) {
	checkTwoPayers(t, redistest.Start(t).URL())
}

func checkTwoPayers(t *testing.T, url string) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), url, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{": paid\n", ": already paid, nothing charged\n", "charged 1 time\n"} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("want %q once, have:\n%s", want, out.String())
		}
	}
}

// newCashier returns a cashier with its own client on a store.
func newCashier(t *testing.T, store driver.Store, o *orders) *cashier {
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	return &cashier{locks: locks, orders: o, charge: slowBank}
}

func TestSomeoneElseIsPaying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		slow, fast := newCashier(t, store, newOrders()), newCashier(t, store, newOrders())
		lease, err := slow.locks.Mutex("order:pay:42").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Unlock()
		begin := time.Now()
		err = fast.pay(t.Context(), "42")
		if !errors.Is(err, dibs.ErrBusy) || !strings.Contains(explain(err), "someone else") {
			t.Errorf("want ErrBusy, have %v", err)
		}
		if waited := time.Since(begin); waited != 10*time.Second {
			t.Errorf("want a wait of 10s, have %v", waited)
		}
	})
}

func TestLostWhileCharging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, o := memstore.New(), newOrders()
		first, second := newCashier(t, store, o), newCashier(t, store, o)
		first.charge = func(ctx context.Context, order string) error {
			unlockByToken(t, second.locks, "order:pay:"+order)
			return second.pay(context.WithoutCancel(ctx), order)
		}
		err := first.pay(t.Context(), "42")
		if !errors.Is(err, dibs.ErrLost) || !strings.Contains(explain(err), "not sure") {
			t.Errorf("want ErrLost, have %v", err)
		}
		if !strings.Contains(err.Error(), "rejected") || o.charges() != 1 {
			t.Errorf("want the late write rejected, have %d charges and %v", o.charges(), err)
		}
	})
}

// unlockByToken releases another client's lock, as an operator would.
func unlockByToken(t *testing.T, locks *dibs.Client, name string) {
	t.Helper()
	state, err := locks.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locks.Attach(t.Context(), dibs.NewHandle(name, string(state.Holders[0].Token)))
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestExplain(t *testing.T) {
	both := errors.Join(errPaid, dibs.ErrLost)
	if have := explain(both); !strings.Contains(have, "not sure") {
		t.Errorf("a lost lease makes the rest uncertain, have %q", have)
	}
	if have := explain(errors.New("no money")); have != "failed: no money" {
		t.Errorf("have %q", have)
	}
}
