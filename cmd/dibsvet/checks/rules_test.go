package checks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
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
		"513 bytes":                only(locks.RWMutex(strings.Repeat("n", 513)).RLock(ctx)),
		"not UTF-8":                locks.Election("\xff").Run(ctx, nothing),
		"All of no names":          locks.All().Do(ctx, nothing),
		"All of 101 names":         locks.All(numbered(101)...).Do(ctx, nothing),
		"All with an empty name":   locks.All("a", "").Do(ctx, nothing),
		"Attach to an empty name":  only(locks.Attach("", "token")),
		"Attach, empty token":      only(locks.Attach("a", "")),
		"Inspect":                  only(locks.Inspect(ctx, "")),
		"Revoke, fence 0":          only(locks.Revoke(ctx, "a", 0, "")),
		"Revoke, two lines":        only(locks.Revoke(ctx, "a", 1, "two\nlines")),
		"no permits":               only(locks.Semaphore("a", 0).Acquire(ctx, 1)),
		"5 permits of 4":           only(locks.Semaphore("a", 4).TryAcquire(ctx, 5)),
		"0 permits of 4":           only(locks.Semaphore("a", 4).Acquire(ctx, 0)),
		"Once of 5 ms":             only(locks.Once("a", 5*time.Millisecond).Do(ctx, nothing)),
		"Once of 25 h":             only(locks.Once("a", 25*time.Hour).Do(ctx, nothing)),
		"Once above MaxHold":       only(locks.Once("a", time.Hour, dibs.MaxHold(time.Minute)).Do(ctx, nothing)),
		"Wait in a constructor":    only(locks.Once("a", time.Hour, dibs.Wait(time.Second)).Do(ctx, nothing)),
		"Once with Wait":           only(locks.Once("a", time.Hour).Do(ctx, nothing, dibs.Wait(0))),
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
		"Label given to Attach":    only(locks.Attach("a", "token", dibs.Label("web"))),
		"Token given to a lock":    only(locks.Mutex("a", dibs.Token("t")).Lock(ctx)),
		"Wait and Attempts":        with(dibs.Wait(time.Second), dibs.Attempts(2, time.Second)),
		"Label with a space":       with(dibs.Label("two words")),
		"Label of 65 bytes":        with(dibs.Label(strings.Repeat("l", 65))),
		"empty Token":              with(dibs.Token("")),
		"Token of 257 bytes":       with(dibs.Token(strings.Repeat("t", 257))),
		"Token given to New":       only(dibs.New(memstore.New(), dibs.Token("t")).Mutex("a").Lock(ctx)),
		"TryLock with Wait":        only(locks.Mutex("a").TryLock(ctx, dibs.Wait(time.Second))),
		"TryRLock with Attempts":   only(locks.RWMutex("a").TryRLock(ctx, dibs.Attempts(2, 1))),
		"TryLock of All with Wait": only(locks.All("a").TryLock(ctx, dibs.Wait(time.Second))),
		"ParseOptions":             only(dibs.ParseOptions("ttl=5ms")),
	} {
		if !errors.Is(err, dibs.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", rule, err)
		}
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
