package sqldrill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// An Upgrade is the migration of a schema in use.
type Upgrade struct {
	Old, Later driver.Store                                  // two versions, sharing a schema made by the old version
	Migrate    func(context.Context) error                   // to the later version
	Guard      func(ctx context.Context, until func()) error // guards ctx's leases by a transaction, which ends after until returns
	// ReleaseIn releases a lease with a transaction, and calls released beforehand. It may be nil.
	ReleaseIn releaseIn
}

type releaseIn = func(s driver.Store, l *dibs.Lease, released func()) error

// Run checks that clients in both versions work at any time, and exclude each other. A transaction
// guarding a lease can delay the migration, but not the clients.
func (u Upgrade) Run(t *testing.T) {
	w := &working{t: t, stop: make(chan struct{})}
	end := sync.OnceFunc(func() {
		close(w.stop)
		w.workers.Wait()
	})
	defer end()
	w.start(u.Old, 6, u.ReleaseIn)
	w.waitFor(200)

	guarding, migrated := make(chan struct{}), make(chan struct{})
	guard := make(chan error, 1)
	go func() {
		guard <- u.guard(t, func() {
			close(guarding)
			<-migrated
		})
	}()
	<-guarding
	before := w.turns.Load()
	limited, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	err := u.Migrate(limited)
	cancel()
	t.Logf("FIGURE during a guarded transaction: %d turns, and %v", w.turns.Load()-before, err)
	w.waitFor(before + 100)
	close(migrated)
	if err := <-guard; err != nil {
		t.Errorf("guard: %v", err)
	}
	if err := u.Migrate(t.Context()); err != nil {
		t.Errorf("migrate: %v", err)
	}
	w.start(u.Later, 6, u.ReleaseIn)
	w.waitFor(w.turns.Load() + 600)
	end()
	t.Logf("FIGURE %d turns", w.turns.Load())
}

func (u Upgrade) guard(t *testing.T, until func()) error {
	locks := dibs.New(u.Old, dibs.Timeout(20*time.Second))
	err := locks.Mutex("guarded").Do(t.Context(), func(ctx context.Context) error { return u.Guard(ctx, until) })
	return errors.Join(err, locks.Close())
}

// working is clients that lock names exclusively, in turn.
type working struct {
	t       *testing.T
	stop    chan struct{}
	workers sync.WaitGroup
	holders [100]atomic.Int32
	turns   atomic.Int64
}

func (w *working) start(s driver.Store, workers int, releaseIn releaseIn) {
	locks := dibs.New(s, dibs.Timeout(20*time.Second))
	w.t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			w.t.Errorf("close: %v", err)
		}
	})
	for number := range workers {
		w.workers.Go(func() {
			for i := number; !w.stopped(); i += 7 {
				if err := w.turn(s, locks, i, releaseIn); err != nil {
					w.t.Errorf("turn %d: %v", i, err)
					return
				}
				w.turns.Add(1)
			}
		})
	}
}

func (w *working) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return w.t.Failed()
	}
}

// turn holds a name alone. If there is releaseIn, every third lease ends in a transaction.
func (w *working) turn(s driver.Store, locks *dibs.Client, i int, releaseIn releaseIn) error {
	at := i % len(w.holders)
	l, err := locks.Mutex(fmt.Sprint("n", at)).Lock(w.t.Context())
	if err != nil {
		return err
	}
	if n := w.holders[at].Add(1); n != 1 {
		return fmt.Errorf("n%d has %d holders", at, n)
	}
	leave := func() { w.holders[at].Add(-1) }
	if i%3 == 0 && releaseIn != nil {
		return errors.Join(releaseIn(s, l, leave), l.Unlock())
	}
	leave()
	return l.Unlock()
}

// waitFor waits until the clients had a number of turns.
func (w *working) waitFor(turns int64) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); w.turns.Load() < turns; time.Sleep(time.Millisecond) {
		if w.t.Failed() || time.Now().After(deadline) {
			w.t.Fatalf("%d of %d turns", w.turns.Load(), turns)
		}
	}
}
