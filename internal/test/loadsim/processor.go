package loadsim

import (
	"math"
	"slices"
	"time"
)

const (
	never = time.Duration(math.MaxInt64)
	// period is the Linux scheduler's period for group limits: after a process used its share of a
	// period, it waits for the next.
	period = 100 * time.Millisecond
)

// A processor determines the server's share of the processor at each time in a plan.
type processor struct {
	changes []change // sorted; the first is at zero

	current int64         // the period in which used was used
	used    time.Duration // in the current period
}

type change struct {
	at    time.Duration
	share float64 // from then on; zero: the server is stopped or down
}

func newProcessor(events []Event) *processor {
	times := []time.Duration{0}
	for _, e := range events {
		if e.kind != cut && e.kind != slowdown {
			times = append(times, e.At, e.end())
		}
	}
	slices.Sort(times)
	p := &processor{}
	for _, at := range slices.Compact(times) {
		p.changes = append(p.changes, change{at, limitAt(events, at)})
	}
	return p
}

func limitAt(events []Event, at time.Duration) float64 {
	share, since := 1.0, time.Duration(-1)
	for _, e := range events {
		switch {
		case (e.kind == stop || e.kind == restart) && e.covers(at):
			return 0
		case e.kind == throttle && e.At <= at && e.At > since:
			share, since = e.share, e.At
		}
	}
	return share
}

// at returns the share at a time, and when it changes.
func (p *processor) at(at time.Duration) (share float64, until time.Duration) {
	i, found := slices.BinarySearchFunc(p.changes, at, func(c change, t time.Duration) int { return int(c.at - t) })
	if !found {
		i--
	}
	until = never
	if i+1 < len(p.changes) {
		until = p.changes[i+1].at
	}
	return p.changes[i].share, until
}

// run returns the end of work that begins at a given time. The times in successive calls must not
// decrease.
func (p *processor) run(at, work time.Duration) time.Duration {
	for {
		share, until := p.at(at)
		if share == 0 {
			at = until
			continue
		}
		if work <= 0 {
			return at
		}
		if now := int64(at / period); now != p.current {
			p.current, p.used = now, 0
		}
		next := min(time.Duration(p.current+1)*period, until)
		step := min(work, time.Duration(share*float64(period))-p.used, next-at)
		if step <= 0 {
			at = next
			continue
		}
		p.used, work, at = p.used+step, work-step, at+step
	}
}

// available returns how much work can be done between two times.
func (p *processor) available(from, to time.Duration) (sum time.Duration) {
	for from < to {
		share, until := p.at(from)
		until = min(until, to)
		sum += time.Duration(share * float64(until-from))
		from = until
	}
	return sum
}
