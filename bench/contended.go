package main

import "time"

const (
	section   = time.Millisecond // time for which a waiter holds the name
	turns     = 8                // at least, for each waiter, so fairness can be measured
	processes = 4                // among which the waiters are distributed
)

// contended measures throughput, hand-offs and fairness under contention.
func contended(b *fixture, c config) ([]*table, error) {
	t := handoffs("contended", aboutGrant,
		"W waiters in min(W, 4) processes lock one name, hold it for 1 ms, and lock it again at once.")
	t.bars = []bar{
		atMost("wire", 2.2), atLeast("Jain", 0.99), atMost("starved", 0), atMost("overlaps", 0),
	}
	if err := b.fillHandoffs(t, c, 0, "baseline-grant", handoffPeers...); err != nil {
		return nil, err
	}
	return []*table{t}, nil
}

const aboutGrant = "baseline-grant: a list in Redis, and an unlock that hands off to its head and publishes that; not safe."

// handoffPeers are the peers in contended and delayed, besides the baseline.
var handoffPeers = []string{"dibs", "redsync", "redsync@10ms", "redislock", "rueidislock"}

func handoffs(name string, about ...string) *table {
	return &table{
		name: name,
		about: append(about,
			"p50, mean: a hand-off, from the call of Unlock to the return of Lock of another waiter.",
			"self: fraction of acquisitions by the waiter that has just released. starved: waiters with less than a tenth of the mean."),
		load: "W",
		columns: []column{
			{"acq/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 0, median}, {"mean µs", 0, median},
			{"wire", 2, median}, {"Jain", 3, median}, {"self", 2, median}, {"longest ms", 0, median},
			{"starved", 0, median}, {"overlaps", 0, maximum},
		},
	}
}

// fillHandoffs measures all rows: through the proxy if rtt is not zero.
func (b *fixture) fillHandoffs(t *table, c config, rtt time.Duration, baseline string, peers ...string) error {
	names := c.chosen(peers...)
	for _, w := range c.waiters {
		length := max(c.time, time.Duration(turns*w)*(section+rtt+rtt/10))
		err := t.interleave(c.rounds, w, baseline, names, func(peer string) (figures, string, error) {
			return b.contend(c, peer, w, section, length, rtt > 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// contend performs a run.
func (b *fixture) contend(c config, peer string, waiters int, section, length time.Duration, far bool) (figures, string, error) {
	orders := b.contenders(peer, waiters, section, far)
	group, err := b.startWorkers(orders...)
	defer group.stop()
	if err != nil {
		return nil, "", err
	}
	w, used, err := group.observe(c.warm, length)
	if err != nil {
		return nil, "", err
	}
	var all history
	for i := range min(waiters, processes) {
		var h history
		if err := group.workers[i].receive(&h); err != nil {
			return nil, "", err
		}
		all.join(h)
	}
	f := all.figures(w, waiters)
	f["wire"] = used.sum(group.wire...) / f["acquisitions"] / float64(len(b.nodes))
	if far {
		var ping pingReport
		if err := group.workers[len(orders)-1].receive(&ping); err != nil {
			return nil, "", err
		}
		rtt := micros(ping.RTT)
		f["p50 RTT"], f["mean RTT"] = f["p50 µs"]/rtt, f["mean µs"]/rtt
		f["commit µs"], f["beyond RTT"] = micros(ping.Commit), (f["p50 µs"]-micros(ping.Commit))/rtt
	}
	return f, all.Failure, nil
}

// contenders returns the orders for a run: for the waiters and, through the proxy, for a
// measurement of the round trip.
func (b *fixture) contenders(peer string, waiters int, section time.Duration, far bool) []order {
	addrs, name := b.addrs(), b.name()
	if far {
		addrs = b.proxyAddrs()
	}
	var orders []order
	for i := range min(waiters, processes) {
		orders = append(orders, order{
			Job: "contend", Peer: peer + b.at, Addrs: addrs, TTL: leaseTTL, Name: name,
			Workers: min(waiters, processes), Index: i, Count: waiters, Section: section,
		})
	}
	if far {
		orders = append(orders, b.pinger())
	}
	return orders
}
