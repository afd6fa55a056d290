package checks_test

import (
	"context"
	"errors"
	"fmt"
	"go/types"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/go/packages"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibsvet/checks"
	"github.com/dibslock/dibs/memstore"
)

// The check badname makes its requests with an ended context. With a live context, package dibs
// should reject the same requests.
func TestRulesHoldAtRunTime(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	locks := dibs.New(memstore.New())
	defer locks.Close()
	lease, err := locks.Mutex("held").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	with := func(options ...dibs.Option) error { return only(locks.Mutex("a").Lock(ctx, options...)) }
	nothing := func(context.Context) error { return nil }
	for rule, err := range map[string]error{
		"empty name":               only(locks.Mutex("").Lock(ctx)),
		"513 bytes":                only(locks.RWMutex(strings.Repeat("n", 513)).Reader().Lock(ctx)),
		"not UTF-8":                locks.Election("\xff").Run(ctx, nothing),
		"All of no names":          locks.All(nil).Do(ctx, nothing),
		"All of 101 names":         locks.All(numbered(101)).Do(ctx, nothing),
		"All with an empty name":   locks.All([]string{"a", ""}).Do(ctx, nothing),
		"Attach to an empty name":  only(locks.Attach(ctx, dibs.NewHandle("", "token"))),
		"Attach, empty token":      only(locks.Attach(ctx, dibs.NewHandle("a", ""))),
		"Inspect":                  only(locks.Inspect(ctx, "")),
		"Revoke of nobody":         only(locks.Revoke(ctx, "a", dibs.Holder{}, "")),
		"Revoke, two lines":        only(locks.Revoke(ctx, "a", dibs.Holder{Fence: 1}, "two\nlines")),
		"no permits":               only(locks.Semaphore("a", 0).Permits(1).Lock(ctx)),
		"5 permits of 4":           only(locks.Semaphore("a", 4).Permits(5).TryLock(ctx)),
		"0 permits of 4":           only(locks.Semaphore("a", 4).Permits(0).Lock(ctx)),
		"Once of 5 ms":             locks.Once("a", 5*time.Millisecond).Do(ctx, nothing),
		"Once of 367 days":         locks.Once("a", 367*24*time.Hour).Do(ctx, nothing),
		"Once above MaxHold":       locks.Once("a", time.Hour, dibs.MaxHold(time.Minute)).Do(ctx, nothing),
		"Wait in a constructor":    locks.Once("a", time.Hour, dibs.Wait(time.Second)).Do(ctx, nothing),
		"Once with Wait":           locks.Once("a", time.Hour).Do(ctx, nothing, dibs.Wait(0)),
		"TTL of 5 ms":              with(dibs.TTL(5 * time.Millisecond)),
		"TTL of 25 h":              with(dibs.TTL(25 * time.Hour)),
		"Extend by 1 ms":           lease.Extend(ctx, time.Millisecond),
		"Timeout of 0":             with(dibs.Timeout(0)),
		"MaxHold of 1 ms":          with(dibs.MaxHold(time.Millisecond)),
		"MinHold below 0":          with(dibs.MinHold(-1)),
		"MinHold of 25 h":          with(dibs.MinHold(25 * time.Hour)),
		"MaxHold below MinHold":    with(dibs.MaxHold(time.Minute), dibs.MinHold(time.Hour)),
		"Wait below 0":             with(dibs.Wait(-1)),
		"0 Attempts":               with(dibs.Attempts(0, time.Second)),
		"Attempts every -1 s":      with(dibs.Attempts(2, -time.Second)),
		"Wait of 3 ns":             with(dibs.Wait(3)),
		"Label given to Attach":    only(locks.Attach(ctx, dibs.NewHandle("a", "token"), dibs.Label("web"))),
		"OwnerToken given to lock": only(locks.Mutex("a", dibs.OwnerToken("t")).Lock(ctx)),
		"Wait and Attempts":        with(dibs.Wait(time.Second), dibs.Attempts(2, time.Second)),
		"Label with a space":       with(dibs.Label("two words")),
		"Label of 129 bytes":       with(dibs.Label(strings.Repeat("l", 129))),
		"empty OwnerToken":         with(dibs.OwnerToken("")),
		"OwnerToken of 257 bytes":  with(dibs.OwnerToken(strings.Repeat("t", 257))),
		"OwnerToken given to New":  only(dibs.New(memstore.New(), dibs.OwnerToken("t")).Mutex("a").Lock(ctx)),
		"TryLock with Wait":        only(locks.Mutex("a").TryLock(ctx, dibs.Wait(time.Second))),
		"TryRLock with Attempts":   only(locks.RWMutex("a").Reader().TryLock(ctx, dibs.Attempts(2, 1))),
		"TryLock of All with Wait": only(locks.All([]string{"a"}).TryLock(ctx, dibs.Wait(time.Second))),
		"MinHold given to Once":    locks.Once("a", time.Hour, dibs.MinHold(time.Hour)).Do(ctx, nothing),
		"Hooks.Renewed in a call":  with(dibs.Observe(dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) {}})),
		"ParseOptions":             only(dibs.ParseOptions("ttl=5ms")),
	} {
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", rule, err)
		}
	}
}

// Each function that makes an option is known to the check badname.
func TestEveryOptionIsChecked(t *testing.T) {
	t.Parallel()
	pkgs, err := packages.Load(&packages.Config{Mode: packages.NeedTypes | packages.NeedImports | packages.NeedDeps}, "github.com/dibslock/dibs")
	if err != nil || len(pkgs) != 1 {
		t.Fatalf("%d packages, %v", len(pkgs), err)
	}
	scope, made := pkgs[0].Types.Scope(), 0
	option := scope.Lookup("Option").Type()
	for _, name := range scope.Names() {
		fn, ok := scope.Lookup(name).(*types.Func)
		if !ok || !fn.Exported() || fn.Signature().Results().Len() != 1 || !types.Identical(fn.Signature().Results().At(0).Type(), option) {
			continue
		}
		made++
		if checks.Makers[name] == nil {
			t.Errorf("the check badname does not know the option %s", name)
		}
	}
	if made != len(checks.Makers) {
		t.Errorf("%d options, and %d in the check", made, len(checks.Makers))
	}
}

func only[T any](_ T, err error) error { return err }

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	return names
}
