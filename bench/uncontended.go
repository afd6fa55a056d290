package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

// uncontended returns the measurement of locks without contention on a single client library. Its
// peers' names end with at.
func uncontended(name, at string, others ...string) func(*fixture, config) ([]*table, error) {
	return func(b *fixture, c config) ([]*table, error) {
		t := &table{
			name: name,
			about: []string{
				"G goroutines of one process lock and unlock names of their own. One pair is a Lock and an Unlock.",
				"The client library follows the @. The default is go-redis; rueidislock uses rueidis.",
				"baseline: SET NX and a compare-and-delete script, on the same library.",
				"wire: commands sent. executed: including those that scripts call. CPU and allocations are those of the whole process.",
			},
			load: "G",
			columns: []column{
				{"pairs/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 0, median}, {"p99 µs", 0, median},
				{"allocs", 1, median}, {"over baseline", 1, median}, {"wire", 2, median}, {"executed", 2, median},
				{"client µs", 1, median}, {"server µs", 1, median},
			},
			bars: []bar{atLeast("ratio", 0.85), atMost("over baseline", 12)},
		}
		peers := append([]string{"dibs" + at, "redsync" + at}, others...)
		return t.pairs(b, c, "baseline"+at, c.chosen(peers...)...)
	}
}

// pairs measures all rows in the table, with a baseline.
func (t *table) pairs(b *fixture, c config, baseline string, names ...string) ([]*table, error) {
	for _, g := range c.goroutines {
		err := t.interleave(c.rounds, g, baseline, names, func(peer string) (figures, string, error) {
			return b.pairs(c, peer, g)
		})
		if err != nil {
			return nil, err
		}
	}
	return []*table{t}, nil
}

// pairs performs a run.
func (b *fixture) pairs(c config, peer string, goroutines int) (figures, string, error) {
	return b.pairsOf(c, order{Peer: peer, Count: goroutines})
}

// pairsOf performs a peer's run with Count goroutines.
func (b *fixture) pairsOf(c config, o order) (figures, string, error) {
	if c.profile != "" {
		o.Profile = fmt.Sprintf("%s-%s-%d.prof", c.profile, o.Peer, o.Count)
	}
	o.Job, o.Peer, o.Addrs, o.TTL, o.Name, o.Workers = "pairs", o.Peer+b.at, b.addrs(), leaseTTL, b.name(), 1
	group, err := b.startWorkers(o)
	defer group.stop()
	if err != nil {
		return nil, "", err
	}
	_, used, err := group.observe(c.warm, c.time)
	if err != nil {
		return nil, "", err
	}
	var r pairsReport
	if err := group.workers[0].receive(&r); err != nil {
		return nil, "", err
	}
	pairs := float64(r.Pairs)
	return figures{
		"pairs/s":   pairs / c.time.Seconds(),
		"p50 µs":    micros(r.P50),
		"p99 µs":    micros(r.P99),
		"allocs":    float64(r.Mallocs) / pairs,
		"wire":      used.sum(group.wire...) / pairs,
		"executed":  used.executed() / pairs,
		"client µs": micros(r.CPU) / pairs,
		"server µs": micros(used.cpu) / pairs,
	}, r.Failure, nil
}

// A pairsReport is a worker's result after its window.
type pairsReport struct {
	Pairs    int
	P50, P99 time.Duration // for a pair
	Mallocs  uint64
	CPU      time.Duration
	Failure  string
}

// pairsJob locks and unlocks with Count goroutines, each on its own names.
func pairsJob(o order, p peer, t link) error {
	var w window
	if err := t.in.Decode(&w); err != nil {
		return err
	}
	lockers := make([]*locker, o.Count)
	var running sync.WaitGroup
	for i := range lockers {
		l := newLocker(fmt.Sprintf("%s:%d", o.Name, i), cmp.Or(o.Names, 64))
		lockers[i] = l
		running.Go(func() { l.run(p, w) })
	}
	report, err := measureWindow(w, o.Profile)
	if err != nil {
		return err
	}
	hung := waitForLockers(&running, lockers)
	return t.out.Encode(report.sum(lockers, hung))
}

// measureWindow measures allocations and CPU time in the process during the window.
func measureWindow(w window, profile string) (pairsReport, error) {
	sleepUntil(w.From)
	stop, err := startProfile(profile)
	if err != nil {
		return pairsReport{}, err
	}
	mallocs, used := heapObjects(), cpu()
	sleepUntil(w.To)
	r := pairsReport{Mallocs: heapObjects() - mallocs, CPU: cpu() - used}
	stop()
	return r, nil
}

func heapObjects() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func startProfile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, pprof.StartCPUProfile(f)
}

// waitForLockers waits until all lockers end. After a second it cancels the lockers still waiting,
// although their locks are free, and returns their number.
func waitForLockers(running *sync.WaitGroup, lockers []*locker) (hung int) {
	var mu sync.Mutex
	grace := time.AfterFunc(time.Second, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lockers {
			if l.ctx.Err() == nil {
				hung++
				l.cancel()
			}
		}
	})
	running.Wait()
	grace.Stop()
	mu.Lock()
	defer mu.Unlock()
	return hung
}

// A locker is a goroutine's work. It has its own context that can be cancelled, like a request in a
// service.
type locker struct {
	ctx       context.Context
	cancel    context.CancelFunc
	names     []string
	durations []float64 // ns
	failed    error
}

func newLocker(name string, names int) *locker {
	l := new(locker)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for i := range names {
		l.names = append(l.names, fmt.Sprintf("%s:%d", name, i))
	}
	return l
}

// run counts the pairs ending within the window.
func (l *locker) run(p peer, w window) {
	defer l.cancel()
	begin := now()
	for i := 0; begin < w.To; i++ {
		err := pair(l.ctx, p, l.names[i%len(l.names)])
		end := now()
		switch {
		case end > w.To:
		case err != nil:
			l.failed = err
			time.Sleep(time.Millisecond)
		case end > w.From:
			l.durations = append(l.durations, float64(end-begin))
		}
		begin = end
	}
}

func pair(ctx context.Context, p peer, name string) error {
	unlock, err := p.Lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock()
}

// sum adds the lockers' results to the report.
func (r pairsReport) sum(lockers []*locker, hung int) pairsReport {
	var all []float64
	for _, l := range lockers {
		all = append(all, l.durations...)
		if l.failed != nil {
			r.Failure = l.failed.Error()
		}
	}
	if hung > 0 {
		r.Failure = fmt.Sprintf("%d of %d goroutines waited for free names until they were stopped", hung, len(lockers))
	}
	r.Pairs = len(all)
	if r.Pairs > 0 { // a Duration has no NaN
		r.P50, r.P99 = time.Duration(percentile(all, 0.5)), time.Duration(percentile(all, 0.99))
	}
	return r
}
