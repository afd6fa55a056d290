package dibstus_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibstus"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/redisstore"
	"github.com/tus/tusd/v2/pkg/handler"
)

const upload = "upload-1"

func newLock(t *testing.T, locks *dibs.Client, id string, options ...dibs.Option) handler.Lock {
	t.Helper()
	lock, err := dibstus.New(locks, options...).NewLock(id)
	noError(t, err)
	return lock
}

// inBubble runs a test in virtual time, with two clients as two servers have them.
func inBubble(t *testing.T, test func(t *testing.T, store *memstore.Store, mine, theirs *dibs.Client)) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		mine, theirs := dibs.New(store), dibs.New(store)
		defer mine.Close()
		defer theirs.Close()
		test(t, store, mine, theirs)
	})
}

func mustNotBeCalled() { panic("a request for an unlock") }

func TestRequestUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibs.Client) {
		for _, second := range []*dibs.Client{mine, theirs} { // in this process, and in another
			first, waiting := newLock(t, mine, upload), newLock(t, second, upload)
			requested := 0
			noError(t, first.Lock(t.Context(), func() {
				requested++
				time.Sleep(time.Second) // the request ends
				noError(t, first.Unlock())
			}))
			time.Sleep(time.Hour)
			if requested > 0 {
				t.Fatal("requested, but nobody waits")
			}
			begin := time.Now()
			noError(t, waiting.Lock(t.Context(), mustNotBeCalled))
			if waited := time.Since(begin); waited != time.Second || requested != 1 {
				t.Errorf("waited %v after %d requests, want 1s after one", waited, requested)
			}
			noError(t, waiting.Unlock())
		}
	})
}

// A request that gets the lock while a third request waits also ends.
func TestRequestUnlockOfAWaiter(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibs.Client) {
		requests := []handler.Lock{newLock(t, mine, upload), newLock(t, theirs, upload), newLock(t, mine, upload)}
		ended := make(chan error, len(requests))
		for _, lock := range requests {
			go func() {
				requested := make(chan struct{})
				err := lock.Lock(t.Context(), func() { close(requested) })
				if err == nil {
					select {
					case <-requested:
					case <-time.After(time.Minute): // the whole upload
					}
					err = lock.Unlock()
				}
				ended <- err
			}()
			synctest.Wait()
		}
		begin := time.Now()
		for range requests {
			noError(t, <-ended)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("took %v, want the minute of the last one", took)
		}
	})
}

func TestRequestUnlockAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memstore.Store, mine, theirs *dibs.Client) {
		first, second := newLock(t, mine, upload), newLock(t, theirs, upload)
		requested := make(chan struct{})
		noError(t, first.Lock(t.Context(), func() { close(requested) }))
		store.LoseData()
		<-requested
		noError(t, second.Lock(t.Context(), mustNotBeCalled))
		wantError(t, first.Unlock(), dibs.ErrLost)
		noError(t, second.Unlock())
	})
}

func TestLockTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibs.Client) {
		var requested atomic.Bool
		first := newLock(t, mine, upload)
		noError(t, first.Lock(t.Context(), func() { requested.Store(true) })) // and does not unlock
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		begin := time.Now()
		wantError(t, newLock(t, theirs, upload).Lock(ctx, mustNotBeCalled), handler.ErrLockTimeout, dibs.ErrBusy, context.DeadlineExceeded)
		if waited := time.Since(begin); waited != 20*time.Second || !requested.Load() {
			t.Errorf("waited %v, requested %v, want 20s, true", waited, requested.Load())
		}
		wantError(t, newLock(t, theirs, upload).Lock(ctx, mustNotBeCalled), handler.ErrLockTimeout, context.DeadlineExceeded)
		wantError(t, newLock(t, theirs, upload, dibs.Wait(0)).Lock(t.Context(), mustNotBeCalled), handler.ErrLockTimeout, dibs.ErrBusy)
		noError(t, first.Unlock())
	})
}

// Nothing remains after Unlock: no call, and no goroutine.
func TestNothingRemains(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *memstore.Store, mine, theirs *dibs.Client) {
		first, second := newLock(t, mine, upload), newLock(t, theirs, upload)
		noError(t, first.Lock(t.Context(), mustNotBeCalled))
		noError(t, first.Unlock())
		noError(t, second.Lock(t.Context(), mustNotBeCalled))
		noError(t, second.Unlock())
		synctest.Wait()
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if strings.Contains(string(stacks), "dibstus.watch") {
			t.Errorf("a goroutine remains:\n%s", stacks)
		}
	})
}

func TestUnlockWithoutLock(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	lock := newLock(t, locks, upload)
	wantError(t, lock.Unlock(), dibs.ErrInvalid)
	noError(t, lock.Lock(t.Context(), mustNotBeCalled))
	noError(t, lock.Unlock())
	wantError(t, lock.Unlock(), dibs.ErrInvalid)
}

func TestInvalidOption(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	wantError(t, newLock(t, locks, upload, dibs.TTL(-1)).Lock(t.Context(), mustNotBeCalled), dibs.ErrInvalid)
}

// The reply to the client must not contain the store's address.
func TestStoreIsNotAvailable(t *testing.T) {
	server := redistest.Start(t)
	conn := redistest.Dial(server.Addr())
	defer conn.Close()
	locks := dibs.New(redisstore.New(conn), dibs.Timeout(100*time.Millisecond))
	defer locks.Close()
	server.Kill()

	err := newLock(t, locks, upload).Lock(t.Context(), mustNotBeCalled)
	wantError(t, err, dibstus.ErrUnavailable, dibs.ErrUnavailable)
	var reply handler.Error
	if !errors.As(err, &reply) || reply.HTTPResponse.StatusCode != http.StatusServiceUnavailable || strings.Contains(reply.HTTPResponse.Body, "127.0.0.1") {
		t.Errorf("the reply is %+v", reply.HTTPResponse)
	}
}

// IDs come from URLs. IDs that no store accepts as a name are also locks, and different ones.
func TestOddIDs(t *testing.T) {
	locks := dibs.New(memstore.New())
	defer locks.Close()
	ids := []string{"", "a/b", "\n", "ä", "\xff", "\xfe", strings.Repeat("a", 508), strings.Repeat("a", 509), strings.Repeat("a", 100_000)}
	for _, id := range ids {
		lock := newLock(t, locks, id)
		if err := lock.Lock(t.Context(), func() {}); err != nil {
			t.Errorf("%.20q: %v", id, err)
		}
		defer lock.Unlock()
		wantError(t, newLock(t, locks, id, dibs.Wait(0)).Lock(t.Context(), mustNotBeCalled), handler.ErrLockTimeout)
	}
	hashed := 0
	for _, err := range locks.List(t.Context(), "tus-sha256:*") {
		noError(t, err)
		hashed++
	}
	if hashed != 4 {
		t.Errorf("%d IDs are hashed, want 4", hashed)
	}
}
