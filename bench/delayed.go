package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// oneWay is how much longer the proxy makes each way.
const oneWay = time.Millisecond

// delayed is the same where the server is far away, and what a pair costs there.
func delayed(b *bed, c config) ([]*table, error) {
	b.delay(oneWay)
	rtt, err := b.ping(c.time)
	if err != nil {
		return nil, err
	}
	far := fmt.Sprintf("Through a proxy that delays each way by %v. An idle PING takes %.2f ms (median).", oneWay, millis(rtt))
	pairs, err := b.delayedPairs(c, far)
	if err != nil {
		return nil, err
	}
	t := handoffs("delayed", far,
		"W waiters in min(W, 4) processes lock one name, hold it for 1 ms, and ask again at once.",
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

// ping measures a round trip while nothing else goes on.
func (b *bed) ping(length time.Duration) (rtt time.Duration, err error) {
	crew, err := b.hire(b.pinger())
	defer crew.dismiss()
	if err != nil {
		return 0, err
	}
	if _, _, err := crew.observe(100*time.Millisecond, length); err != nil {
		return 0, err
	}
	err = crew.workers[0].hear(&rtt)
	return rtt, err
}

// delayedPairs is the uncontended pair, of one goroutine, in round trips.
func (b *bed) delayedPairs(c config, far string) (*table, error) {
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
	err := t.interleave(c.rounds, 1, "floor", names, func(peer string) (figures, string, error) {
		return b.farPair(c, peer, func() {})
	})
	return t, err
}

// farPair is one run. Once the worker is ready, begin happens.
func (b *bed) farPair(c config, peer string, begin func()) (figures, string, error) {
	crew, err := b.hire(
		order{Job: "pairs", Peer: peer, Addrs: b.far(), TTL: leaseTTL, Name: b.name(), Workers: 1, Count: 1},
		b.pinger())
	defer crew.dismiss()
	if err != nil {
		return nil, "", err
	}
	begin()
	if _, _, err := crew.observe(c.warm, c.time); err != nil {
		return nil, "", err
	}
	var r pairsReport
	var rtt time.Duration
	if err := crew.workers[0].hear(&r); err != nil {
		return nil, "", err
	}
	if err := crew.workers[1].hear(&rtt); err != nil {
		return nil, "", err
	}
	f := figures{"pairs/s": float64(r.Pairs) / c.time.Seconds()}
	if r.Pairs > 0 {
		f["p50 µs"], f["p99 µs"] = micros(r.P50), micros(r.P99)
		f["p50 RTT"] = float64(r.P50) / float64(rtt)
	}
	return f, r.Trouble, nil
}

func (b *bed) pinger() order {
	return order{Job: "ping", Peer: "floor", Addrs: b.far()[:1], TTL: leaseTTL, Name: b.name()}
}

// pingJob measures what a round trip takes, as one more process that talks to the
// server, while others do. Every 5 ms is often enough, and adds no load.
func pingJob(o order, _ peer, t talk) error {
	var w window
	if err := t.in.Decode(&w); err != nil {
		return err
	}
	rdb := newSite(o.Addrs, o.TTL).rdb
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
