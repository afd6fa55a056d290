package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), "", &out); err != nil {
		t.Fatal(err)
	}
	if want := "deposited 50, balance 150\nlate write: rejected"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("output %q, want %q", out.String(), want)
	}
}

// A holder that lost its lease should not overwrite the next holder's balance.
func TestLateWriteIsRejected(t *testing.T) {
	ctx, store := t.Context(), memstore.New()
	db, err := openDB(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	a := accounts{db}
	locks := dibs.New(store)
	defer locks.Close()
	stopped, err := locks.Mutex("account:7").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	balance, err := a.read(ctx, "7") // and now it is stopped
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Revoke(ctx, "account:7", dibs.Holder{Fence: stopped.Fence()}, ""); err != nil {
		t.Fatal(err)
	}
	others := dibs.New(store)
	defer others.Close()
	if after, err := deposit(ctx, others, a, "7", 50); err != nil || after != 150 {
		t.Fatal(after, err)
	}
	if err := a.write(ctx, "7", balance-30, stopped.Fence()); !errors.Is(err, errStale) {
		t.Errorf("late write: %v, want errStale", err)
	}
	if have, err := a.read(ctx, "7"); err != nil || have != 150 {
		t.Errorf("balance %d, %v, want 150", have, err)
	}
}
