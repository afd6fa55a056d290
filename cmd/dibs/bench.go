package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/view"
	"github.com/spf13/cobra"
)

func benchCmd(a *app) *cobra.Command {
	during := durationFlag(3 * time.Second)
	var workers int
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the latency of locks on the store",
		Long: `Measure the latency of locks from this host: pairs of lock and unlock without
contention, and hand-offs from a holder to a waiter.

The names are random, under dibs:bench:, and released. For the hash slot of each
worker, one key without a TTL stays in Redis, the same one in each run.`,
		Example: `  dibs bench --url redis://cache:6379
  dibs bench --time 10s -c 64
  dibs bench --json | jq .pairs.p99_us`,
		Args: argCount(0, 0),
		RunE: func(*cobra.Command, []string) error {
			switch {
			case time.Duration(during) < time.Millisecond:
				return usage("--time %v: want at least 1ms", time.Duration(during))
			case workers < 1 || workers > 10000:
				return usage("-c %d: want 1 to 10000", workers)
			}
			return a.withStore(func(ctx context.Context, s *opened) error {
				return bench(ctx, a.con, s, time.Duration(during), workers)
			})
		},
	}
	c.Flags().Var(&during, "time", "duration of each of the two measurements")
	c.Flags().IntVarP(&workers, "concurrency", "c", 1, "number of concurrent workers")
	return c
}

// A measure is the result of one measurement.
type measure struct {
	Count int     `json:"count"`
	Rate  float64 `json:"per_second"`
	P50   int64   `json:"p50_us"`
	P99   int64   `json:"p99_us"`
}

// A benchmark is the output of bench.
type benchmark struct {
	Schema      int     `json:"schema"`
	Store       string  `json:"store"`
	Time        int64   `json:"time_ms"`
	Concurrency int     `json:"concurrency"`
	Pairs       measure `json:"pairs"`
	HandOffs    measure `json:"hand_offs"`
}

func bench(ctx context.Context, con *console, s *opened, during time.Duration, workers int) error {
	one, other := s.client(), s.client()
	defer one.Close()
	defer other.Close()
	run := rand.Text()
	if err := warmUp(ctx, s, one, other, benchName(run, 0)); err != nil {
		return err
	}
	pairs, err := runWorkers(ctx, during, workers, func(ctx context.Context, n int) ([]time.Duration, error) {
		return lockAndUnlock(ctx, one.Mutex(benchName(run, n)))
	})
	if err != nil {
		return err
	}
	began, released := time.Now(), new(atomic.Int64)
	runners := [2]handOffClient{newHandOffClient(one, benchName(run, 0)), newHandOffClient(other, benchName(run, 0))}
	handOffs, err := runWorkers(ctx, during, len(runners), func(ctx context.Context, n int) ([]time.Duration, error) {
		return runners[n].run(ctx, runners[1-n], began, released)
	})
	if err != nil {
		return err
	}
	if con.json {
		return con.printJSON(benchmark{view.Schema, s.location, during.Milliseconds(), workers, pairs, handOffs})
	}
	var t view.Table
	t.Row("", "PER SECOND", "P50", "P99", "COUNT")
	t.Row(pairs.cells("lock and unlock")...)
	t.Row(handOffs.cells("hand-off")...)
	return con.print(t.String())
}

// benchName returns a random name in a fixed hash slot: Redis keeps a fence high-water
// mark for each slot that has ever had a lock.
func benchName(run string, worker int) string { return fmt.Sprintf("dibs:bench:{%d}:%s", worker, run) }

// warmUp opens the connections, which must not be measured. It inspects a name first: if
// the store is unreachable, that needs no clean-up.
func warmUp(ctx context.Context, s *opened, one, other *dibs.Client, name string) error {
	if _, err := s.poller().Inspect(ctx, name); err != nil {
		return err
	}
	for _, locks := range []*dibs.Client{one, other} {
		lease, err := locks.Mutex(name).Lock(ctx)
		if err == nil {
			err = lease.Unlock()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runWorkers calls sample in n goroutines with a context that ends after during. The
// first failure ends all of them.
func runWorkers(whole context.Context, during time.Duration, n int, sample func(ctx context.Context, n int) ([]time.Duration, error)) (measure, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(whole, during)
	defer cancel()
	samples, errs := make([][]time.Duration, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if samples[i], errs[i] = sample(ctx, i); errs[i] != nil {
				cancel()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return measure{}, err
		}
	}
	return measureOf(slices.Concat(samples...), time.Since(began)), context.Cause(whole)
}

func measureOf(samples []time.Duration, took time.Duration) measure {
	if len(samples) == 0 {
		return measure{}
	}
	slices.Sort(samples)
	n := len(samples)
	return measure{
		Count: n, Rate: math.Round(float64(n) / took.Seconds()),
		P50: samples[(n-1)/2].Microseconds(), P99: samples[(n-1)*99/100].Microseconds(),
	}
}

func (m measure) cells(what string) []string {
	if m.Count == 0 {
		return []string{what, "-", "-", "-", "0"}
	}
	us := func(n int64) string { return (time.Duration(n) * time.Microsecond).String() }
	return []string{what, strconv.FormatFloat(m.Rate, 'f', 0, 64), us(m.P50), us(m.P99), strconv.Itoa(m.Count)}
}

func lockAndUnlock(ctx context.Context, m *dibs.Mutex) (samples []time.Duration, err error) {
	for {
		began := time.Now()
		lease, err := m.Lock(ctx)
		if err == nil {
			err = lease.Unlock()
		}
		if ctx.Err() != nil {
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
		samples = append(samples, time.Since(began))
	}
}

// A handOffClient hands a name off to another handOffClient and waits for it again.
type handOffClient struct {
	mutex  *dibs.Mutex
	queued chan struct{} // receives when the client has joined the queue
}

func newHandOffClient(locks *dibs.Client, name string) handOffClient {
	queued := make(chan struct{}, 1)
	waiting := func(context.Context, dibs.Queued) {
		select {
		case queued <- struct{}{}:
		default:
		}
	}
	return handOffClient{locks.Mutex(name, dibs.Observe(dibs.Hooks{Queued: waiting})), queued}
}

// run measures the times from the other client's Unlock until this one holds. released is
// the time of that Unlock since began.
func (r handOffClient) run(ctx context.Context, other handOffClient, began time.Time, released *atomic.Int64) (samples []time.Duration, err error) {
	for {
		lease, err := r.mutex.Lock(ctx)
		acquired := time.Since(began)
		if ctx.Err() != nil {
			if err == nil {
				_ = lease.Unlock() // if that fails, closing the client releases it
			}
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
		if at := released.Load(); at > 0 {
			samples = append(samples, acquired-time.Duration(at))
		}
		select {
		case <-other.queued:
		case <-ctx.Done():
		}
		released.Store(int64(time.Since(began)))
		if err := lease.Unlock(); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
}
