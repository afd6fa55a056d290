package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// oneWay is the proxy's delay in each direction.
const oneWay = time.Millisecond

// delayed measures pairs, and contention as in contended, with a network delay.
func delayed(b *fixture, c config) ([]*table, error) {
	b.delay(oneWay)
	rtt, err := b.idlePing(c.time)
	if err != nil {
		return nil, err
	}
	far := fmt.Sprintf("Through a proxy that adds %v in each direction. An idle PING takes %.2f ms (median).", oneWay, millis(rtt))
	pairs, err := b.delayedPairs(c, far)
	if err != nil {
		return nil, err
	}
	t := handoffs("delayed", aboutGrant, far,
		"W waiters in min(W, 4) processes lock one name, hold it for 1 ms, and lock it again at once.",
		"RTT: the median PING of another process during the same run.")
	t.columns = slices.Insert(t.columns, 4,
		column{"p50 RTT", 2, median}, column{"mean RTT", 2, median})
	t.bars = []bar{
		atMost("p50 RTT", 1.15), atMost("wire", 2.2), atLeast("Jain", 0.99), atMost("starved", 0),
		atMost("overlaps", 0), atLeast("ratio", 0.95), aboveAll("acq/s"),
	}
	if err := b.fillHandoffs(t, c, rtt, "baseline-grant", handoffPeers...); err != nil {
		return nil, err
	}
	return []*table{pairs, t}, nil
}

// idlePing measures the round-trip time for idle servers.
func (b *fixture) idlePing(length time.Duration) (rtt time.Duration, err error) {
	group, err := b.startWorkers(b.pinger())
	defer group.stop()
	if err != nil {
		return 0, err
	}
	if _, _, err := group.observe(100*time.Millisecond, length); err != nil {
		return 0, err
	}
	var r pingReport
	err = group.workers[0].receive(&r)
	return r.RTT, err
}

// delayedPairs measures a single goroutine's uncontended pairs in round trips.
func (b *fixture) delayedPairs(c config, far string) (*table, error) {
	t := &table{
		name:  "delayed pair",
		about: []string{far, "One goroutine locks and unlocks names of its own.", "RTT: the median PING of another process during the same run."},
		load:  "G",
		columns: []column{
			{"pairs/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 0, median}, {"p50 RTT", 2, median},
		},
		bars: []bar{atMost("p50 RTT", 2.1)},
	}
	names := c.chosen("dibs", "redsync", "redislock", "rueidislock")
	err := t.interleave(c.rounds, 1, "baseline", names, func(peer string) (figures, string, error) {
		return b.farPair(c, peer, func() {})
	})
	return t, err
}

// farPair performs a run. It calls begin when the worker is ready.
func (b *fixture) farPair(c config, peer string, begin func()) (figures, string, error) {
	group, err := b.startWorkers(
		order{Job: "pairs", Peer: peer + b.at, Addrs: b.proxyAddrs(), TTL: leaseTTL, Name: b.name(), Workers: 1, Count: 1},
		b.pinger())
	defer group.stop()
	if err != nil {
		return nil, "", err
	}
	begin()
	if _, _, err := group.observe(c.warm, c.time); err != nil {
		return nil, "", err
	}
	var r pairsReport
	var ping pingReport
	if err := group.workers[0].receive(&r); err != nil {
		return nil, "", err
	}
	if err := group.workers[1].receive(&ping); err != nil {
		return nil, "", err
	}
	f := figures{"pairs/s": float64(r.Pairs) / c.time.Seconds()}
	if r.Pairs > 0 {
		f["p50 µs"], f["p99 µs"] = micros(r.P50), micros(r.P99)
		f["p50 RTT"] = float64(r.P50) / float64(ping.RTT)
	}
	return f, r.Failure, nil
}

// pinger returns the order for an additional process, which measures the round-trip time.
func (b *fixture) pinger() order {
	return order{Job: b.ping, Peer: "baseline" + b.at, Addrs: []string{b.nodes[0].proxy.Addr(), b.nodes[0].Addr()}, TTL: leaseTTL, Name: b.name()}
}

// A pingReport is a pinger's result.
type pingReport struct {
	RTT    time.Duration
	Commit time.Duration // on PostgreSQL
}

// pingJob measures the round trip time to the first address while others load the server.
func pingJob(o order, _ peer, t link) error {
	rdb := newEndpoint(o.Addrs[:1], o.TTL).rdb
	ctx := context.Background()
	took, err := sample(t, func() error { return rdb.Ping(ctx).Err() })
	if err != nil {
		return err
	}
	return t.out.Encode(pingReport{RTT: took[0]})
}

// sample receives a window and returns the functions' median durations within it. It calls each
// every 5 ms, which adds little load.
func sample(t link, functions ...func() error) ([]time.Duration, error) {
	var w window
	if err := t.in.Decode(&w); err != nil {
		return nil, err
	}
	took := make([][]float64, len(functions))
	for now() < w.To || len(took[0]) == 0 { // at least once, however busy the machine is
		for i, f := range functions {
			begin := now()
			if err := f(); err != nil {
				return nil, err
			}
			if begin > w.From {
				took[i] = append(took[i], float64(now()-begin))
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	medians := make([]time.Duration, len(functions))
	for i := range took {
		medians[i] = time.Duration(percentile(took[i], 0.5))
	}
	return medians, nil
}
