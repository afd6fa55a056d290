package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const quorumNodes = 5

// A load is a number of waiters for a name, and the holding time.
type load struct {
	waiters int
	section time.Duration
}

// quorums measures locks on a majority of five servers started for the table.
func quorums(_ *fixture, c config) ([]*table, error) {
	b, err := newRedis(quorumNodes)
	if err != nil {
		return nil, err
	}
	defer b.close()
	b.delay(oneWay)
	rtt, err := b.idlePing(c.time)
	if err != nil {
		return nil, err
	}
	far := fmt.Sprintf("Five servers, each behind a proxy that adds %v in each direction. An idle PING takes %.2f ms (median).", oneWay, millis(rtt))
	pair, err := b.quorumPair(c, far)
	if err != nil {
		return nil, err
	}
	contended, err := b.quorumContended(c, far, rtt)
	if err != nil {
		return nil, err
	}
	fault, err := b.quorumFaults(c, far)
	if err != nil {
		return nil, err
	}
	return []*table{pair, contended, fault}, nil
}

const (
	aboutRTT      = "RTT: the median PING of the first server, by another process during the same run."
	aboutFailFast = "redsync@failfast returns when a majority has answered; redsync by default, when all have."
)

// quorumPair measures a single goroutine's uncontended pairs in round trips.
func (b *fixture) quorumPair(c config, far string) (*table, error) {
	t := &table{
		name: "quorum pair",
		about: []string{
			far, "One goroutine locks and unlocks names of its own.", aboutRTT, aboutFailFast,
			"baseline-quorum: SET NX and a compare-and-delete script on all servers at once, complete when a majority has answered.",
		},
		load: "G",
		columns: []column{
			{"pairs/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 0, median}, {"p50 RTT", 2, median},
		},
		bars: []bar{atMost("p50 RTT", 2.2)},
	}
	names := c.chosen("dibs", "redsync", "redsync@failfast")
	err := t.interleave(c.rounds, 1, "baseline-quorum", names, func(peer string) (figures, string, error) {
		return b.farPair(c, peer, func() {})
	})
	return t, err
}

// quorumContended measures contention for a single name.
func (b *fixture) quorumContended(c config, far string, rtt time.Duration) (*table, error) {
	t := handoffs("quorum contended", aboutGrant, far,
		fmt.Sprintf("W waiters in min(W, 4) processes lock one name, hold it, and lock it again at once. Waiters and hold times: %v.", c.loads),
		"wire: commands for each of the five. baseline-grant uses one of them only.", aboutFailFast,
		"of fair: the longest wait, as a fraction of 1.5 times W critical sections with 3 RTT each.",
		aboutRTT)
	t.columns = slices.Insert(t.columns, 4,
		column{"p50 RTT", 2, median}, column{"mean RTT", 2, median})
	t.columns = slices.Insert(t.columns, len(t.columns)-2, column{"of fair", 2, median})
	t.bars = []bar{
		atMost("p50 RTT", 1.5), atMost("wire", 2.5), atLeast("Jain", 0.99), atMost("of fair", 1), atMost("starved", 0),
		atMost("overlaps", 0), timesAll("acq/s", 1.3),
	}
	names := c.chosen("dibs", "redsync", "redsync@failfast", "redsync@10ms", "redsync@2ms")
	for _, load := range c.loads {
		w := load.waiters
		length := max(c.time, time.Duration(turns*w)*(load.section+rtt+rtt/10))
		fair := 1.5 * float64(w) * millis(load.section+3*rtt)
		err := t.interleave(c.rounds, w, "baseline-grant", names, func(peer string) (figures, string, error) {
			f, note, err := b.contend(c, peer, w, load.section, length, true)
			if err == nil {
				f["of fair"] = f["longest ms"] / fair
			}
			return f, note, err
		})
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// String implements fmt.Stringer.
func (c load) String() string { return strconv.Itoa(c.waiters) + " for " + c.section.String() }

// faults affect a minority of the nodes, and are injected while the nodes are in use.
var faults = []struct {
	name   string
	inject func([]*node)
}{
	{"all five", func([]*node) {}},
	{"2 killed", func(nodes []*node) {
		for _, n := range nodes[quorumNodes-2:] {
			n.dead = true
			n.Kill()
		}
	}},
	{"1 slow", func(nodes []*node) { nodes[quorumNodes-1].proxy.Delay(slow) }},
}

// slow is a slow node's one-way delay.
const slow = 250 * time.Millisecond

// repair ends all faults.
func (b *fixture) repair() error {
	b.delay(oneWay)
	for _, n := range b.nodes {
		if !n.dead {
			continue
		}
		if err := n.Restart(); err != nil {
			return err
		}
		n.dead = false
	}
	return nil
}

// quorumFaults measures uncontended pairs while a minority of the nodes is dead or slow.
func (b *fixture) quorumFaults(c config, far string) (*table, error) {
	t := &table{
		name: "quorum faults",
		about: []string{
			far, fmt.Sprintf("One goroutine locks and unlocks names of its own. slow: %v in each direction.", slow),
			"of all: the rate, as a fraction of that with all five nodes in the same round.", aboutRTT, aboutFailFast,
		},
		load: "with",
		columns: []column{
			{"pairs/s", 0, median}, {"of all", 2, median}, {"p50 µs", 0, median}, {"p99 µs", 0, median}, {"p50 RTT", 2, median},
		},
		bars: []bar{atLeast("of all", 0.8)},
	}
	names := c.chosen("dibs", "redsync", "redsync@failfast")
	for _, fault := range faults {
		for _, peer := range names {
			t.row(fault.name, peer)
		}
	}
	for round := range c.rounds {
		progress("%s, round %d of %d", t.name, round+1, c.rounds)
		for _, peer := range names {
			if err := b.runFaults(t, c, peer); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// runFaults performs a peer's runs in a round.
func (b *fixture) runFaults(t *table, c config, peer string) error {
	var all float64
	for _, fault := range faults {
		measure := measurement(func(string) (figures, string, error) {
			f, note, err := b.farPair(c, peer, func() { fault.inject(b.nodes) })
			return f, note, errors.Join(err, b.repair())
		})
		f, note, err := measure.withRetry(peer)
		if err != nil {
			return err
		}
		progress("  %s, %s: %s pairs/s", peer, fault.name, format(f["pairs/s"], 0))
		if all == 0 {
			all = f["pairs/s"]
		}
		f["of all"] = f["pairs/s"] / all
		t.addRemark(fault.name, peer, note)
		r := t.row(fault.name, peer)
		r.runs = append(r.runs, f)
	}
	return nil
}
