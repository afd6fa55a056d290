package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/examples/internal/exstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
)

func TestScenes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { checkScenes(t, memstore.New()) })
}

func TestScenesOnRedis(t *testing.T) {
	store, err := exstore.Open(t.Context(), redistest.Start(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	checkScenes(t, store)
}

// With the decorator no update is lost. Around it the implementation refuses every call.
// Without locks some updates are lost, and orders are charged twice.
func checkScenes(t *testing.T, store driver.Store) {
	t.Helper()
	scene := func(newShop func(*dibs.Client, *database) Shop) result {
		r, err := play(t.Context(), store, newShop)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	locked := scene(func(locks *dibs.Client, data *database) Shop { return LockShop(locks, &service{data, locks.Holds}) })
	if want := (result{charges: orders, balance: machines * deposits}); locked != want {
		t.Errorf("with the decorator: want %+v, have %+v", want, locked)
	}
	around := scene(func(locks *dibs.Client, data *database) Shop { return &service{data, locks.Holds} })
	if want := (result{refused: machines * (orders + deposits)}); around != want {
		t.Errorf("around the decorator: want %+v, have %+v", want, around)
	}
	unlocked := scene(func(_ *dibs.Client, data *database) Shop { return &service{data, noAssertion} })
	if unlocked.charges <= orders || unlocked.balance >= machines*deposits || unlocked.refused != 0 {
		t.Errorf("without locks: want more than %d charges and a balance below %d, have %+v", orders, machines*deposits, unlocked)
	}
}

// A lock on another name is not enough.
func TestWrongLock(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	s := &service{newDatabase(), locks.Holds}
	err := locks.Mutex(orderLock("1")).Do(t.Context(), func(ctx context.Context) error { return s.Pay(ctx, "2") })
	if !errors.Is(err, dibs.ErrInvalid) || s.data.paid("2") {
		t.Errorf("want ErrInvalid, have %v", err)
	}
}

func TestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), "", &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"with the decorator:     5 charges for 5 orders, balance 200 of 200,   0 calls refused\n",
			"around the decorator:   0 charges for 5 orders, balance   0 of 200, 240 calls refused\n",
			"without locks:         40 charges",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("want %q in\n%s", want, out.String())
			}
		}
	})
}
