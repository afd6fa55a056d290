package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cohort"
)

const (
	cohortWaiters = 128 // in 4 processes
	cohortBatch   = 32
	cohortLinger  = 100 * time.Millisecond
)

// A cohortPeer is dibs with a cohort for each name.
type cohortPeer struct {
	dibsPeer
	linger time.Duration

	mu     sync.RWMutex
	groups map[string]*cohort.Cohort
}

func openCohort(linger time.Duration) opener {
	return func(s endpoint) (peer, error) {
		locks := dibs.New(s.store(), dibs.TTL(s.ttl))
		return &cohortPeer{dibsPeer: dibsPeer{locks}, linger: linger, groups: make(map[string]*cohort.Cohort)}, nil
	}
}

func (p *cohortPeer) Lock(ctx context.Context, name string) (func() error, error) {
	lease, err := p.group(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

func (p *cohortPeer) group(name string) *cohort.Cohort {
	p.mu.RLock()
	group := p.groups[name]
	p.mu.RUnlock()
	if group != nil {
		return group
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups[name] == nil {
		p.groups[name] = cohort.New(p.locks.Mutex(name), cohortBatch, p.linger)
	}
	return p.groups[name]
}

// cohorts measures callers in a few processes for a single name, with and without cohorts.
func cohorts(b *fixture, c config) ([]*table, error) {
	pair, err := b.lingeringPair(c)
	if err != nil {
		return nil, err
	}
	near, err := b.cohortHandoffs(c, "cohort", 0, 0, 20, "No delay, no work.")
	if err != nil {
		return nil, err
	}
	b.delay(oneWay)
	defer b.delay(0)
	rtt, err := b.idlePing(c.time)
	if err != nil {
		return nil, err
	}
	far, err := b.cohortHandoffs(c, "cohort delayed", section, rtt, 3,
		fmt.Sprintf("Through a proxy that adds %v in each direction. An idle PING takes %.2f ms (median). 1 ms of work.", oneWay, millis(rtt)))
	return []*table{pair, near, far}, err
}

// cohortHandoffs measures the acquisitions of a single name. work is the time it is held, and least
// the bar for the ratio.
func (b *fixture) cohortHandoffs(c config, name string, work, rtt time.Duration, least float64, about string) (*table, error) {
	t := handoffs(name, aboutGrant, about, fmt.Sprintf("%d waiters in 4 processes lock one name, and lock it again at once. Cohorts have batches of %d.", cohortWaiters, cohortBatch),
		"bound: the longest wait that is documented for a cohort. fairness: Jain's index of the processes.")
	t.columns = append(t.columns, column{"pass µs", 1, median}, column{"handoff µs", 0, median}, column{"fairness", 3, median}, column{"bound ms", 0, median}, column{"of bound", 2, maximum})
	t.ours = "dibs@cohort"
	t.bars = []bar{atLeast("ratio", least), atLeast("fairness", 0.99), atMost("overlaps", 0)}
	if work > 0 { // otherwise a busy machine determines the longest wait
		t.bars = append(t.bars, atMost("of bound", 1))
	}
	names := c.chosen("dibs", "dibs@cohort")
	length := max(c.time, time.Duration(turns*cohortWaiters)*(work+rtt+rtt/10))
	err := t.interleave(c.rounds, cohortWaiters, "baseline-grant", names, func(peer string) (figures, string, error) {
		f, failure, err := b.contend(c, peer, cohortWaiters, work, length, rtt > 0)
		if err == nil {
			f["bound ms"] = longestWait(f, work)
			f["of bound"] = f["longest ms"] / f["bound ms"]
		}
		return f, failure, err
	})
	return t, err
}

// longestWait returns the documented bound on a wait, in ms. A call that comes in the middle of its
// process's turn needs another turn, and all processes take turns.
func longestWait(f figures, work time.Duration) float64 {
	const each = cohortBatch + 1 // calls in a turn
	const turns = 1 + (cohortWaiters/processes+each-1)/each
	turn := each*(f["pass µs"]/1000+millis(work)) + f["handoff µs"]/1000
	return processes * turns * turn
}

// lingeringPair measures a goroutine that repeatedly locks and unlocks a name.
func (b *fixture) lingeringPair(c config) (*table, error) {
	t := &table{
		name:  "cohort pair",
		about: []string{fmt.Sprintf("One goroutine locks and unlocks one name. Cohorts linger for %v.", cohortLinger)},
		load:  "G",
		columns: []column{
			{"pairs/s", 0, median}, {"ratio", 2, median}, {"p50 µs", 2, median}, {"p99 µs", 2, median},
			{"allocs", 1, median}, {"wire", 4, median},
		},
		ours: "dibs@linger",
		bars: []bar{atLeast("ratio", 50)},
	}
	err := t.interleave(c.rounds, 1, "baseline", c.chosen("dibs", "dibs@linger"), func(peer string) (figures, string, error) {
		return b.pairsOf(c, order{Peer: peer, Names: 1, Count: 1})
	})
	return t, err
}
