package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// held measures the cost of many leases in a process.
func held(b *fixture, c config) ([]*table, error) {
	t := &table{
		name: "held",
		about: []string{
			fmt.Sprintf("One process holds and renews leases with a TTL of %v for %v, in one client.", c.heldTTL, c.heldFor),
			"baseline-renew@batch: a set of names, and one goroutine that extends 100 in a script.",
			"B: heap and stacks in use after a collection, for each lease. wire: commands for each lease and TTL.",
			"per call: leases renewed by one script call. lost: reported by the peer, or missing on the server.",
			"client µs, server µs: CPU time for each lease and TTL.",
		},
		columns: []column{
			{"leases", 0, median}, {"goroutines", 3, median}, {"B", 0, median}, {"wire", 3, median},
			{"per call", 1, median}, {"client µs", 1, median}, {"server µs", 1, median}, {"lost", 0, maximum},
		},
		bars: []bar{atMost("goroutines", 0.001), atMost("B", 350), atLeast("per call", 50), atMost("lost", 0)},
	}
	for _, peer := range c.chosen("baseline-renew@batch", "dibs", "rueidislock") {
		leases := c.held
		if peer == "rueidislock" {
			leases = min(leases, 10_000) // it starts a goroutine for each: more leases need a larger machine
		}
		progress("held, %d leases of %s", leases, peer)
		f, used, err := b.hold(c, peer, leases)
		if err != nil {
			return nil, err
		}
		f["per call"] = used.sum("pexpire", "pexpireat") / used.sum("evalsha", "eval")
		t.row("", peer).runs = []figures{f}
	}
	return []*table{t}, nil
}

// hold performs a run. It also returns the server's work while the leases are held.
func (b *fixture) hold(c config, peer string, leases int) (f figures, used usage, err error) {
	o := order{
		Job: "hold", Peer: peer + b.at, Addrs: b.addrs(), TTL: c.heldTTL, Name: b.name(), Workers: 1, Count: leases,
	}
	group, err := b.startWorkers(o)
	defer group.stop()
	if err != nil {
		return nil, used, err
	}
	if err := group.send(startSignal{}); err != nil {
		return nil, used, err
	}
	var taken int
	if err := group.workers[0].receive(&taken); err != nil {
		return nil, used, err
	}
	_, used, err = group.observe(0, c.heldFor)
	if err != nil {
		return nil, used, err
	}
	present, err := b.nodes[0].held(o.heldName(""))
	if err != nil {
		return nil, used, err
	}
	var r holdReport
	if err := group.workers[0].receive(&r); err != nil {
		return nil, used, err
	}
	if err := b.nodes[0].clear(); err != nil { // or the leases would expire during the next run
		return nil, used, err
	}
	n, ttls := float64(leases), c.heldFor.Seconds()/c.heldTTL.Seconds()
	return figures{
		"leases":     n,
		"goroutines": float64(r.Goroutines) / n,
		"B":          float64(r.Bytes) / n,
		"wire":       used.sum(group.wire...) / n / ttls,
		"client µs":  micros(r.CPU) / n / ttls,
		"server µs":  micros(used.cpu) / n / ttls,
		"lost":       float64(max(r.Lost, leases-present, 0)),
	}, used, nil
}

// heldName returns a name for a hold job.
func (o order) heldName(id string) string { return o.Name + ":held:" + id }

// A holdReport is a worker's result after its window.
type holdReport struct {
	Goroutines int
	Bytes      int64
	CPU        time.Duration
	Lost       int
}

// A footprint is a process's goroutines and memory.
type footprint struct {
	goroutines int
	bytes      int64
}

func measureFootprint() footprint {
	runtime.GC()
	runtime.GC() // the first collection does not free pooled objects
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), int64(m.HeapAlloc + m.StackInuse)}
}

// holdJob acquires Count leases, reports completion, and measures its footprint at the window's
// end.
func holdJob(o order, p peer, t link) error {
	k, ok := p.(renewingPeer)
	if !ok {
		return fmt.Errorf("%s does not renew leases", o.Peer)
	}
	var begin startSignal
	if err := t.in.Decode(&begin); err != nil {
		return err
	}
	names, leases := make([]string, o.Count), make([]heldLease, o.Count)
	for i := range names {
		names[i] = o.heldName(strconv.Itoa(i))
	}
	// Open as many connections as acquireAll needs, so they do not count.
	if err := warmUpConnections(k, o.Name); err != nil {
		return err
	}
	empty := measureFootprint()
	if err := acquireAll(k, names, leases); err != nil {
		return err
	}
	if err := t.out.Encode(len(leases)); err != nil {
		return err
	}
	var w window
	if err := t.in.Decode(&w); err != nil {
		return err
	}
	sleepUntil(w.From)
	before := cpu()
	sleepUntil(w.To)
	used := cpu() - before
	full := measureFootprint()
	r := holdReport{Goroutines: full.goroutines - empty.goroutines, Bytes: full.bytes - empty.bytes, CPU: used}
	for _, lease := range leases {
		if lease.Lost() {
			r.Lost++
		}
	}
	runtime.KeepAlive(names)
	return t.out.Encode(r)
}

// atOnce is the number of concurrent acquisitions, as for requests in a service.
const atOnce = 64

// warmUpConnections locks and unlocks, as concurrently as acquireAll.
func warmUpConnections(p peer, name string) error {
	return concurrently(10*atOnce, func(i int) error {
		return warm(p, fmt.Sprintf("%s:rehearsal:%d", name, i))
	})
}

func acquireAll(k renewingPeer, names []string, leases []heldLease) error {
	err := concurrently(len(names), func(i int) (err error) {
		leases[i], err = k.Keep(context.Background(), names[i])
		return err
	})
	time.Sleep(100 * time.Millisecond) // until temporary goroutines have ended
	return err
}

// concurrently calls do count times, atOnce at a time, and returns the first error.
func concurrently(count int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for i := next.Add(1) - 1; int(i) < count; i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
