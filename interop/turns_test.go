package interop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wantTurns checks that neither side starves the other, unless the library breaks, or dibs does not
// notify its waiters. How many turns each side gets depends on the machine and on the library.
func (r *row) wantTurns(t *testing.T, name string) {
	t.Helper()
	if r.breaks || r.unnotified {
		return
	}
	unseen := name + ":turns" // without a turn of the library before
	wantTurns(t, dibsLocker{r.dibs}, r.theirs, unseen, r.loadTTL())
	r.wantFree(t, unseen)
}

// wantTurns checks that a waiter of a library gets a turn beside workers of dibs that never pause,
// and that each of these workers gets another turn.
func wantTurns(t *testing.T, dibs, library locker, name string, ttl time.Duration) {
	t.Helper()
	const workers = 4
	ctx, cancel := context.WithCancel(t.Context())
	var (
		libraryServed        atomic.Bool
		begun, served, ended sync.WaitGroup
	)
	defer ended.Wait()
	defer cancel()
	for range workers {
		begun.Add(1)
		served.Add(1)
		begin, serve := sync.OnceFunc(begun.Done), sync.OnceFunc(served.Done)
		ended.Go(func() {
			defer begin()
			defer serve()
			for ctx.Err() == nil {
				l, err := dibs.lock(ctx, name, ttl)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("dibs: %v", err)
					}
					return
				}
				begin()
				if libraryServed.Load() {
					serve()
				}
				time.Sleep(time.Millisecond)
				wantUnlocked(t, "dibs", l)
			}
		})
	}
	waitFor(t, "each worker of dibs has a turn", &begun)
	waiting, stop := context.WithTimeout(ctx, 2*patience)
	defer stop()
	l, err := library.lock(waiting, name, longTTL)
	if err != nil {
		t.Fatalf("theirs: no turn beside the workers of dibs: %v", err)
	}
	libraryServed.Store(true)
	if ok, err := l.unlock(t.Context()); !errors.Is(err, errUnreported) && (err != nil || !ok) {
		t.Errorf("theirs: unlock: %v, %v", ok, err)
	}
	waitFor(t, "each worker of dibs has a turn after theirs", &served)
}

func waitFor(t *testing.T, what string, group *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}
