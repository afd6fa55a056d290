package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	section    = time.Millisecond // how long a waiter holds the name
	turns      = 8                // each waiter's at least, so that fairness can be told
	processes  = 4                // over which waiters are spread
	inProxyOne = time.Millisecond // how much longer the proxy makes each way
)

// contended is what a lock gives whom when everybody wants it.
func contended(b *bed, c config) ([]*table, error) {
	t := handoffs("contended",
		"W waiters in min(W, 4) processes lock one name, hold it for 1 ms, and ask again at once.")
	t.bars = []bar{
		atMost("wire", 2.2), atLeast("Jain", 0.99), atMost("starved", 0), atMost("overlaps", 0),
	}
	return []*table{t}, b.fillHandoffs(t, c, 0)
}

// delayed is the same where the server is far away, and what a pair costs there.
func delayed(b *bed, c config) ([]*table, error) {
	b.proxy.Delay(inProxyOne)
	rtt, err := b.ping(b.proxy.Addr(), c.time)
	if err != nil {
		return nil, err
	}
	far := fmt.Sprintf("Through a proxy that delays each way by %v. An idle PING takes %.2f ms (median).", inProxyOne, millis(rtt))
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
	return []*table{pairs, t}, b.fillHandoffs(t, c, rtt)
}

func handoffs(name string, about ...string) *table {
	return &table{
		name: name,
		about: append(about,
			"floor-grant: a list in Redis, and an unlock that gives the name to its head and publishes that; not safe.",
			"p50, mean: a hand-off, from before Unlock is called to after Lock has returned to another waiter.",
			"self: share of acquisitions by the one who just released. starved: waiters with less than a tenth of the mean."),
		load: "W",
		columns: []column{
			{"acq/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 0, median}, {"mean µs", 0, median},
			{"wire", 2, median}, {"Jain", 3, median}, {"self", 2, median}, {"longest ms", 0, median},
			{"starved", 0, median}, {"overlaps", 0, most},
		},
	}
}

// fillHandoffs measures all rows, through the proxy if there is a round trip time.
func (b *bed) fillHandoffs(t *table, c config, rtt time.Duration) error {
	names := c.chosen("dibs", "redsync", "redsync@10ms", "redislock", "rueidislock")
	for _, w := range c.waiters {
		length := max(c.time, time.Duration(turns*w)*(section+rtt+rtt/10))
		err := t.interleave(c.rounds, w, "floor-grant", names, func(peer string) (figures, string, error) {
			return b.contend(c, peer, w, length, rtt > 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// contend is one run.
func (b *bed) contend(c config, peer string, waiters int, length time.Duration, far bool) (figures, string, error) {
	orders := b.contenders(peer, waiters, far)
	crew, err := b.hire(orders...)
	defer crew.dismiss()
	if err != nil {
		return nil, "", err
	}
	w, used, err := crew.observe(c.warm, length)
	if err != nil {
		return nil, "", err
	}
	var all history
	for i := range min(waiters, processes) {
		var h history
		if err := crew.workers[i].hear(&h); err != nil {
			return nil, "", err
		}
		all.join(h)
	}
	f := all.figures(w, waiters)
	f["wire"] = used.sum(crew.wire...) / f["acquisitions"]
	if far {
		var rtt time.Duration
		if err := crew.workers[len(orders)-1].hear(&rtt); err != nil {
			return nil, "", err
		}
		f["p50 RTT"], f["mean RTT"] = f["p50 µs"]/micros(rtt), f["mean µs"]/micros(rtt)
	}
	return f, all.Trouble, nil
}

// contenders are the orders of one run: the waiters', and far away somebody who
// measures the way.
func (b *bed) contenders(peer string, waiters int, far bool) []order {
	addr, name := b.server.Addr(), b.name()
	if far {
		addr = b.proxy.Addr()
	}
	var orders []order
	for i := range min(waiters, processes) {
		orders = append(orders, order{
			Job: "contend", Peer: peer, Addr: addr, TTL: leaseTTL, Name: name,
			Workers: min(waiters, processes), Index: i, Count: waiters, Section: section,
		})
	}
	if far {
		orders = append(orders, pinger(addr, b.name()))
	}
	return orders
}

func pinger(addr, name string) order {
	return order{Job: "ping", Peer: "floor", Addr: addr, TTL: leaseTTL, Name: name}
}

// ping measures a round trip while nothing else goes on.
func (b *bed) ping(addr string, length time.Duration) (rtt time.Duration, err error) {
	crew, err := b.hire(pinger(addr, b.name()))
	defer crew.dismiss()
	if err != nil {
		return 0, err
	}
	if _, _, err := crew.observe(100*time.Millisecond, length); err != nil {
		return 0, err
	}
	return rtt, crew.workers[0].hear(&rtt)
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
	return t, t.interleave(c.rounds, 1, "floor", names, func(peer string) (figures, string, error) {
		return b.delayedPair(c, peer)
	})
}

func (b *bed) delayedPair(c config, peer string) (figures, string, error) {
	addr := b.proxy.Addr()
	crew, err := b.hire(
		order{Job: "pairs", Peer: peer, Addr: addr, TTL: leaseTTL, Name: b.name(), Workers: 1, Count: 1},
		pinger(addr, b.name()))
	defer crew.dismiss()
	if err != nil {
		return nil, "", err
	}
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
	return figures{
		"pairs/s": float64(r.Pairs) / c.time.Seconds(),
		"p50 µs":  micros(r.P50),
		"p50 RTT": float64(r.P50) / float64(rtt),
	}, r.Trouble, nil
}

// A span is one acquisition: Lock was called, it returned, and Unlock was called.
// One that was still waiting when the run ended has only the first.
type span struct {
	Waiter             int
	Asked, Begin, Done time.Duration
}

// A history is what happened to all waiters of a process, or of all.
type history struct {
	Spans   []span
	Trouble string
}

func (h *history) join(other history) {
	h.Spans = append(h.Spans, other.Spans...)
	if other.Trouble != "" {
		h.Trouble = other.Trouble
	}
}

// figures sums up a window of a history. Only what began within it counts; a wait
// that did not end within it is as long as it has become by then.
func (h *history) figures(w window, waiters int) figures {
	held, longest := h.order(w)
	shares := make([]float64, waiters)
	var gaps []float64
	var free time.Duration // since when, as far as is known
	self, overlaps := 0, 0
	for i, s := range held {
		if s.Begin < free {
			overlaps++
		}
		free = max(free, s.Done)
		if s.Begin < w.From {
			continue
		}
		shares[s.Waiter]++
		switch {
		case i == 0:
		case held[i-1].Waiter == s.Waiter:
			self++
		default:
			gaps = append(gaps, micros(s.Begin-held[i-1].Done))
		}
	}
	n := sum(shares)
	return figures{
		"acquisitions": n,
		"acq/s":        n / (w.To - w.From).Seconds(),
		"p50 µs":       percentile(gaps, 0.5),
		"mean µs":      mean(gaps),
		"Jain":         jain(shares),
		"self":         float64(self) / n,
		"longest ms":   millis(longest),
		"starved":      float64(starved(shares)),
		"overlaps":     float64(overlaps),
	}
}

// order returns the spans that began before the window's end, in the order in
// which they began, and the longest wait within it.
func (h *history) order(w window) (held []span, longest time.Duration) {
	for _, s := range h.Spans {
		answered := s.Begin > 0 && s.Begin < w.To
		if answered {
			held = append(held, s)
		}
		switch {
		case !answered && s.Asked < w.To:
			longest = max(longest, w.To-s.Asked)
		case s.Begin > w.From:
			longest = max(longest, s.Begin-s.Asked)
		}
	}
	slices.SortFunc(held, func(a, b span) int { return int(a.Begin - b.Begin) })
	return held, longest
}
