package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// oneWay is the delay that the proxy adds in each direction.
const oneWay = time.Millisecond

// delayed measures pairs, and contention as in contended, with a network delay.
func delayed(b *fixture, c config) ([]*table, error) {
	b.delay(oneWay)
	rtt, err := b.ping(c.time)
	if err != nil {
		return nil, err
	}
	far := fmt.Sprintf("Through a proxy that adds %v in each direction. An idle PING takes %.2f ms (median).", oneWay, millis(rtt))
	pairs, err := b.delayedPairs(c, far)
	if err != nil {
		return nil, err
	}
	t := handoffs("delayed", far,
		"W waiters in min(W, 4) processes lock one name, hold it for 1 ms, and lock it again at once.",
		"RTT: the median PING of another process during the same run.")
	t.columns = slices.Insert(t.columns, 4,
		column{"p50 RTT", 2, median}, column{"mean RTT", 2, median})
	t.bars = []bar{
		atMost("p50 RTT", 1.15), atMost("wire", 2.2), atLeast("Jain", 0.99), atMost("starved", 0),
		atMost("overlaps", 0), atLeast("ratio", 0.95), aboveAll("acq/s"),
	}
	if err := b.fillHandoffs(t, c, rtt); err != nil {
		return nil, err
	}
	return []*table{pairs, t}, nil
}

// ping measures the round trip time of idle servers.
func (b *fixture) ping(length time.Duration) (rtt time.Duration, err error) {
	group, err := b.startWorkers(b.pinger())
	defer group.stop()
	if err != nil {
		return 0, err
	}
	if _, _, err := group.observe(100*time.Millisecond, length); err != nil {
		return 0, err
	}
	err = group.workers[0].receive(&rtt)
	return rtt, err
}

// delayedPairs measures the uncontended pair of one goroutine in round trips.
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

// farPair performs one run. It calls begin when the worker is ready.
func (b *fixture) farPair(c config, peer string, begin func()) (figures, string, error) {
	group, err := b.startWorkers(
		order{Job: "pairs", Peer: peer, Addrs: b.proxyAddrs(), TTL: leaseTTL, Name: b.name(), Workers: 1, Count: 1},
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
	var rtt time.Duration
	if err := group.workers[0].receive(&r); err != nil {
		return nil, "", err
	}
	if err := group.workers[1].receive(&rtt); err != nil {
		return nil, "", err
	}
	f := figures{"pairs/s": float64(r.Pairs) / c.time.Seconds()}
	if r.Pairs > 0 {
		f["p50 µs"], f["p99 µs"] = micros(r.P50), micros(r.P99)
		f["p50 RTT"] = float64(r.P50) / float64(rtt)
	}
	return f, r.Failure, nil
}

func (b *fixture) pinger() order {
	return order{Job: "ping", Peer: "baseline", Addrs: b.proxyAddrs()[:1], TTL: leaseTTL, Name: b.name()}
}

// pingJob measures the round trip time in one more process while others load the server.
// It pings every 5 ms, which adds little load.
func pingJob(o order, _ peer, t link) error {
	var w window
	if err := t.in.Decode(&w); err != nil {
		return err
	}
	rdb := newEndpoint(o.Addrs, o.TTL).rdb
	ctx := context.Background()
	var took []float64
	for now() < w.To || len(took) == 0 { // one at least, however busy the machine is
		begin := now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return err
		}
		if begin > w.From {
			took = append(took, float64(now()-begin))
		}
		time.Sleep(5 * time.Millisecond)
	}
	return t.out.Encode(time.Duration(percentile(took, 0.5)))
}
