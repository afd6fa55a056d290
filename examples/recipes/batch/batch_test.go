package batch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// chunkTime is how long a batch's chunk, or a job, takes.
const chunkTime = time.Minute

// A batchRun runs Rebuild once in virtual time.
type batchRun struct {
	locks  *dibs.Client
	begin  time.Time
	fences []uint64 // for each chunk
	ended  chan error
}

// startBatch starts Rebuild with n chunks. It calls work at the end of each.
func startBatch(t *testing.T, store *memstore.Store, n int, work func(ctx context.Context) error) *batchRun {
	t.Helper()
	r := &batchRun{locks: dibs.New(store), begin: time.Now(), ended: make(chan error, 1)}
	t.Cleanup(func() { r.locks.Close() })
	go func() {
		r.ended <- Rebuild(t.Context(), r.locks, func(ctx context.Context, fence uint64) (bool, error) {
			r.fences = append(r.fences, fence)
			time.Sleep(chunkTime)
			return len(r.fences) < n, work(ctx)
		})
	}()
	return r
}

func succeed(context.Context) error { return nil }

// Without other requests the batch keeps its lease.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startBatch(t, memstore.New(), 10, succeed)
		if err := <-r.ended; err != nil {
			t.Fatal(err)
		}
		if len(r.fences) != 10 || len(slices.Compact(r.fences)) != 1 {
			t.Errorf("fences %d, want the same one 10 times", r.fences)
		}
		if took := time.Since(r.begin); took != 10*chunkTime {
			t.Errorf("took %v, want %v", took, 10*chunkTime)
		}
	})
}

// A request waits for the end of a chunk, not of the batch.
func TestRequestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		r := startBatch(t, store, 10, succeed)
		others := dibs.New(store)
		defer others.Close()

		time.Sleep(2*chunkTime + chunkTime/2) // in the third chunk
		err := others.Mutex("catalogue").Do(t.Context(), func(context.Context) error {
			if waited := time.Since(r.begin); waited != 3*chunkTime {
				t.Errorf("entered after %v, want %v", waited, 3*chunkTime)
			}
			time.Sleep(time.Hour)
			if len(r.fences) != 3 {
				t.Errorf("%d chunks before the end of the request, want 3", len(r.fences))
			}
			return nil
		})
		if err := errors.Join(err, <-r.ended); err != nil {
			t.Fatal(err)
		}
		if len(r.fences) != 10 {
			t.Errorf("%d chunks, want 10", len(r.fences))
		}
		if terms := slices.Compact(r.fences); len(terms) != 2 || terms[0] >= terms[1] {
			t.Errorf("leases %d, want a second one with a larger fence", terms)
		}
	})
}

// A batch that lost its lease ends after the chunk.
func TestBatchIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		r := startBatch(t, store, 10, func(ctx context.Context) error {
			store.LoseData()
			<-ctx.Done()
			return nil
		})
		if err := <-r.ended; !errors.Is(err, dibs.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
		if len(r.fences) != 1 {
			t.Errorf("%d chunks, want 1", len(r.fences))
		}
	})
}

// startServe starts Serve.
func startServe(ctx context.Context, t *testing.T, store *memstore.Store) (jobs chan func(context.Context), ended chan error) {
	t.Helper()
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	jobs, ended = make(chan func(context.Context)), make(chan error, 1)
	go func() { ended <- Serve(ctx, locks, jobs) }()
	synctest.Wait()
	return jobs, ended
}

// A process without a job gives up the device at once; a running job ends before.
func TestDeviceIsWanted(t *testing.T) {
	for name, busy := range map[string]time.Duration{"idle": 0, "busy": chunkTime} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				jobs, ended := startServe(t.Context(), t, store)
				time.Sleep(time.Hour)
				jobs <- func(context.Context) { time.Sleep(busy) }
				synctest.Wait()

				others := dibs.New(store)
				defer others.Close()
				begin := time.Now()
				lease, err := others.Mutex("device").Lock(t.Context(), dibs.Wait(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				defer lease.Unlock()
				if waited := time.Since(begin); waited != busy {
					t.Errorf("waited %v, want %v", waited, busy)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Serve ends when its lease is lost, and when its context ends.
func TestServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		limit, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, ended := startServe(limit, t, store)
		store.LoseData()
		if err := <-ended; !errors.Is(err, dibs.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}

		ctx, stop := context.WithCancel(limit)
		_, ended = startServe(ctx, t, store)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the cause of the context", err)
		}
	})
}
