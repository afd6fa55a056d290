package acquire

import (
	"slices"
	"testing"
	"time"
)

// A simulation of polling waiters: each wants to poll again after a pause.
type pollSimulation struct {
	pacer pollPacer
	due   map[time.Duration][]int // waiters by the time of their next poll
	polls []int                   // by waiter
}

func simulatePolls(waiters int, pause func(waiter int) time.Duration, within time.Duration) (polls []int, bursts int) {
	s := &pollSimulation{due: make(map[time.Duration][]int), polls: make([]int, waiters)}
	for i := range waiters {
		at := time.Duration(i%100) * time.Millisecond
		s.due[at] = append(s.due[at], i)
	}
	for now := time.Duration(0); now < within; now += time.Millisecond {
		if len(s.due[now]) > 0 && now >= within/2 { // after the start
			bursts++
		}
		for _, i := range s.due[now] {
			if now >= within/2 {
				s.polls[i]++
			}
			at := now + s.pacer.delay(now, pause(i))
			at = (at + time.Millisecond - 1).Truncate(time.Millisecond)
			s.due[at] = append(s.due[at], i)
		}
		delete(s.due, now)
	}
	return s.polls, bursts
}

// Many waiters that want to poll every 100 ms should send a limited number of requests, in a
// limited number of bursts. They should take turns, without large differences. None should poll so
// seldom as to lose its place in the queue.
func TestManyWaitersPollTogether(t *testing.T) {
	t.Parallel()
	const within = 20 * time.Second
	for _, c := range []struct{ waiters, most, least int }{ // polls per second: in total, and for each waiter
		{100, 1000, 9}, {1000, 1050, 0}, {10000, 6000, 0},
	} {
		polls, bursts := simulatePolls(c.waiters, func(int) time.Duration { return 100 * time.Millisecond }, within)
		seconds, sum := int(within/2/time.Second), 0
		for _, n := range polls {
			sum += n
		}
		if sum > c.most*seconds {
			t.Errorf("%d waiters poll %d times a second, want at most %d", c.waiters, sum/seconds, c.most)
		}
		if bursts > 21*seconds {
			t.Errorf("%d waiters poll at %d times a second, want at most 20", c.waiters, bursts/seconds)
		}
		least, most := slices.Min(polls), slices.Max(polls)
		if most > least*3/2+2 || least < c.least*seconds {
			t.Errorf("%d waiters poll %d to %d times in %d s", c.waiters, least, most, seconds)
		}
		if longest := time.Duration(seconds) * time.Second / time.Duration(max(least, 1)); longest > latestPoll {
			t.Errorf("%d waiters: one polls every %v, want at most %v", c.waiters, longest, latestPoll)
		}
	}
}

// A few waiters poll exactly when they want to.
func TestFewWaitersPollAtOnce(t *testing.T) {
	t.Parallel()
	var p pollPacer
	now := 12345 * time.Microsecond
	for i := range 1000 {
		const pause = 2 * time.Millisecond
		if got := p.delay(now, pause); got != pause {
			t.Fatalf("poll %d of a lone waiter after %v, want %v", i, got, pause)
		}
		now += pause
	}
	now += time.Hour
	for i := range fewPolls {
		if got := p.delay(now, time.Second); got != time.Second {
			t.Errorf("poll of waiter %d after %v, want 1s", i, got)
		}
	}
}
