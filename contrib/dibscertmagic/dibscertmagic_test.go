package dibscertmagic_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibscertmagic"
	"github.com/dibslock/dibs/memstore"
)

// inBubble runs a test in virtual time, as two processes would run it.
func inBubble(t *testing.T, test func(t *testing.T, store *memstore.Store, mine, theirs *dibscertmagic.Storage)) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		my, their := dibs.New(store), dibs.New(store)
		defer my.Close()
		defer their.Close()
		test(t, store, newStorage(t, "unused", my), newStorage(t, "unused", their))
	})
}

func TestLockWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibscertmagic.Storage) {
		ctx := t.Context()
		for _, second := range []*dibscertmagic.Storage{mine, theirs} { // in this process, and in another
			noError(t, mine.Lock(ctx, lockName))
			time.AfterFunc(time.Hour, func() { noError(t, mine.Unlock(ctx, lockName)) })
			begin := time.Now()
			noError(t, second.Lock(ctx, lockName))
			if waited := time.Since(begin); waited != time.Hour {
				t.Errorf("waited %v, want 1h", waited)
			}
			noError(t, second.Unlock(ctx, lockName))
		}
	})
}

// A process's goroutines should get the lock in their order, without those that gave up.
func TestOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, _ *dibscertmagic.Storage) {
		noError(t, mine.Lock(t.Context(), lockName))
		var served []int
		for i := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				if mine.Lock(ctx, lockName) == nil {
					served = append(served, i)
					noError(t, mine.Unlock(ctx, lockName))
				}
			}()
			synctest.Wait()
			if i%5 == 0 {
				cancel()
			}
		}
		noError(t, mine.Unlock(t.Context(), lockName))
		synctest.Wait()
		if len(served) != 16 || !slices.IsSorted(served) {
			t.Errorf("served %v, want 16 in their order", served)
		}
	})
}

func TestLockIsCancelled(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibscertmagic.Storage) {
		noError(t, mine.Lock(t.Context(), lockName))
		for _, second := range []*dibscertmagic.Storage{mine, theirs} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begin := time.Now()
			wantError(t, second.Lock(ctx, lockName), dibs.ErrBusy, context.DeadlineExceeded)
			if waited := time.Since(begin); waited != time.Minute {
				t.Errorf("waited %v, want 1m", waited)
			}
			cancel()
		}
		noError(t, mine.Unlock(t.Context(), lockName))
		noError(t, theirs.Lock(t.Context(), lockName)) // nothing was left behind
		noError(t, theirs.Unlock(t.Context(), lockName))
		noError(t, mine.Lock(t.Context(), lockName))
	})
}

func TestTryLock(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibscertmagic.Storage) {
		ctx := t.Context()
		want := func(s *dibscertmagic.Storage, want bool) {
			t.Helper()
			if got, err := s.TryLock(ctx, lockName); got != want || err != nil {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
		want(mine, true)
		want(mine, false)
		want(theirs, false)
		noError(t, mine.Unlock(ctx, lockName))
		want(theirs, true)
		noError(t, theirs.Unlock(ctx, lockName))
		want(mine, true)
	})
}

func TestNotHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibscertmagic.Storage) {
		ctx := t.Context()
		noError(t, theirs.Lock(ctx, lockName))
		ctx, cancel := context.WithCancel(ctx)
		waiting := make(chan error, 1)
		go func() { waiting <- mine.Lock(ctx, lockName) }()
		synctest.Wait()
		wantError(t, mine.Unlock(ctx, lockName), dibs.ErrInvalid) // it only waits
		wantError(t, mine.RenewLockLease(ctx, lockName, time.Hour), dibs.ErrInvalid)
		cancel()
		wantError(t, <-waiting, dibs.ErrBusy)
		noError(t, theirs.Unlock(ctx, lockName))
		wantError(t, theirs.Unlock(ctx, lockName), dibs.ErrInvalid)
		wantError(t, theirs.RenewLockLease(ctx, lockName, time.Hour), dibs.ErrInvalid)
	})
}

// A renewal does not lengthen the lease: after a crash it would block the others.
func TestRenewLockLease(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memstore.Store, mine, _ *dibscertmagic.Storage) {
		ctx := t.Context()
		noError(t, mine.Lock(ctx, lockName))
		noError(t, mine.RenewLockLease(ctx, lockName, 6*time.Hour))
		state, err := store.Inspect(ctx, dibsName)
		if err != nil || len(state.Holders) != 1 || state.Holders[0].Remaining > 30*time.Second {
			t.Errorf("got %v, %v, want a holder for 30s", state.Holders, err)
		}
		noError(t, mine.Unlock(ctx, lockName))
	})
}

func TestLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memstore.Store, mine, theirs *dibscertmagic.Storage) {
		ctx := t.Context()
		noError(t, mine.Lock(ctx, lockName))
		store.LoseData()
		time.Sleep(time.Minute) // the loss is detected

		second, third := make(chan error, 1), make(chan error, 1)
		go func() { second <- mine.Lock(ctx, lockName) }()
		synctest.Wait()
		if len(second) > 0 {
			t.Fatalf("a second holder in this process: %v", <-second)
		}
		if ok, err := mine.TryLock(ctx, lockName); ok || err != nil {
			t.Fatalf("a second holder in this process: %v, %v", ok, err)
		}
		go func() { third <- theirs.Lock(ctx, lockName) }()
		noError(t, <-third)

		noError(t, mine.Unlock(ctx, lockName)) // nothing to release, and nothing for CertMagic to repeat
		synctest.Wait()
		if len(second) > 0 {
			t.Fatalf("a second holder: %v", <-second)
		}
		noError(t, theirs.Unlock(ctx, lockName))
		noError(t, <-second)
		noError(t, mine.Unlock(ctx, lockName))
	})
}

// A renewal after a loss waits for the new holder, and holds the lock again.
func TestRenewLockLeaseAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memstore.Store, mine, theirs *dibscertmagic.Storage) {
		ctx := t.Context()
		noError(t, mine.Lock(ctx, lockName))
		store.LoseData()
		noError(t, theirs.Lock(ctx, lockName))
		time.Sleep(time.Minute)

		ended, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		wantError(t, mine.RenewLockLease(ended, lockName, time.Hour), dibs.ErrBusy)
		renewed := make(chan error, 1)
		go func() { renewed <- mine.RenewLockLease(ctx, lockName, time.Hour) }()
		synctest.Wait()
		if len(renewed) > 0 {
			t.Fatalf("renewed while another process holds the lock: %v", <-renewed)
		}
		noError(t, theirs.Unlock(ctx, lockName))
		noError(t, <-renewed)
		if ok, err := theirs.TryLock(ctx, lockName); ok || err != nil {
			t.Errorf("got %v, %v, want the lock to be held", ok, err)
		}
		noError(t, mine.Unlock(ctx, lockName))
	})
}

// When the process exits, CertMagic unlocks all names, even if a renewal waits.
func TestUnlockDuringRenewLockLease(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memstore.Store, mine, theirs *dibscertmagic.Storage) {
		ctx := t.Context()
		noError(t, mine.Lock(ctx, lockName))
		store.LoseData()
		noError(t, theirs.Lock(ctx, lockName))
		time.Sleep(time.Minute)
		renewed := make(chan error, 1)
		go func() { renewed <- mine.RenewLockLease(ctx, lockName, time.Hour) }()
		synctest.Wait()
		noError(t, mine.Unlock(ctx, lockName))
		noError(t, theirs.Unlock(ctx, lockName))
		wantError(t, <-renewed, dibs.ErrInvalid)
		state, err := store.Inspect(ctx, dibsName)
		if err != nil || len(state.Holders) > 0 {
			t.Errorf("got %v, %v, want no holder", state.Holders, err)
		}
	})
}

func TestClosedClient(t *testing.T) {
	locks := dibs.New(memstore.New())
	storage := newStorage(t, "unused", locks)
	noError(t, locks.Close())
	for range 2 { // the first call leaves nothing behind
		wantError(t, storage.Lock(t.Context(), lockName), dibs.ErrClosed)
		_, err := storage.TryLock(t.Context(), lockName)
		wantError(t, err, dibs.ErrClosed)
	}
}

func TestOptions(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	noError(t, newStorage(t, "unused", locks, dibs.Label("first"), dibs.Wait(time.Minute)).Lock(t.Context(), lockName))
	state, err := locks.Inspect(t.Context(), dibsName)
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Label != "first" {
		t.Errorf("got %v, %v, want one holder with the label first", state, err)
	}
	second := newStorage(t, "unused", locks, dibs.Wait(0))
	wantError(t, second.Lock(t.Context(), lockName), dibs.ErrBusy)
	wantError(t, newStorage(t, "unused", locks, dibs.TTL(-1)).Lock(t.Context(), lockName), dibs.ErrInvalid)
}

// Names that no store accepts should also be locks, and different ones.
func TestOddNames(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	storage := newStorage(t, "unused", locks)
	names := []string{"", "a b", "\n", "*.example.com", "ä", "\xff", "\xfe", strings.Repeat("a", 502), strings.Repeat("a", 503), strings.Repeat("a", 100_000)}
	for _, name := range names {
		if ok, err := storage.TryLock(t.Context(), name); !ok || err != nil {
			t.Errorf("%.20q: got %v, %v, want true", name, ok, err)
		}
	}
	other := newStorage(t, "unused", locks)
	for _, name := range names {
		if ok, err := other.TryLock(t.Context(), name); ok || err != nil {
			t.Errorf("%.20q: got %v, %v, want false", name, ok, err)
		}
		noError(t, storage.Unlock(t.Context(), name))
	}
	hashed := 0
	for _, name := range names {
		noError(t, storage.Lock(t.Context(), name))
	}
	for state, err := range locks.List(t.Context(), "certmagic-sha256:*") {
		noError(t, err)
		hashed++
		if len(state.Name) != len("certmagic-sha256:")+64 {
			t.Errorf("name %q", state.Name)
		}
	}
	if hashed != 4 {
		t.Errorf("%d names are hashed, want 4", hashed)
	}
}

// Many goroutines in two processes use one name.
func TestExclusion(t *testing.T) {
	store := memstore.New()
	my, their := dibs.New(store), dibs.New(store)
	defer my.Close()
	defer their.Close()
	var workers sync.WaitGroup
	held := 0 // the race detector reports a second holder
	for _, storage := range []*dibscertmagic.Storage{newStorage(t, "unused", my), newStorage(t, "unused", their)} {
		for range 20 {
			workers.Go(func() {
				for range 10 {
					if err := storage.Lock(t.Context(), lockName); err != nil {
						t.Error(err)
						return
					}
					held++
					if err := storage.Unlock(t.Context(), lockName); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	workers.Wait()
	if held != 400 {
		t.Errorf("%d, want 400", held)
	}
}

func TestString(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	if got, want := newStorage(t, "/certs", locks).String(), "FileStorage:/certs with locks of dibs"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var unnamed struct{ certmagic.Storage }
	if got, want := dibscertmagic.New(unnamed, locks).String(), "struct { certmagic.Storage } with locks of dibs"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
