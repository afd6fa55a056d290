package acquire

import (
	"sync"
	"time"
)

// A pollPacer makes a client's waiters poll together, so that their requests share batches. It also
// limits their rate: to 1,000 requests a second, or to about one request per waiter in two seconds
// if that is more. A few waiters are not limited; they poll as soon as their queues move. The zero
// pollPacer is ready for use. It is safe for concurrent use.
//
// Time is divided into ticks. A waiter gets the first tick with room at or after its desired time,
// so waiters with equal pauses take turns. If a waiter is granted the lock meanwhile, its tick
// stays unused.
type pollPacer struct {
	mu      sync.Mutex
	first   int64              // the earliest tick that counts
	counts  [pacedTicks]uint16 // polls by tick, modulo pacedTicks
	pending int                // polls in all ticks
}

const (
	pollTick   = 10 * time.Millisecond // a client's waiters poll at multiples of this time
	pacedTicks = 1024                  // more than the longest pause and delay
	fewPolls   = 16                    // pending ones; not limited
	slowTicks  = 5                     // those whose queues do not move poll at each fifth tick
	tickPolls  = 10                    // in a tick, unless they would take too long
	roundTicks = 180                   // in which each waiter polls once
	pollDelay  = 2 * time.Second       // the longest delay
	latestPoll = 3 * time.Second       // from now, well before WaiterTTL: a poll is also a heartbeat
)

// delay returns when a waiter should poll, given its desired pause.
func (p *pollPacer) delay(now, pause time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(int64(now / pollTick))
	wanted := int64((now + pause + pollTick - 1) / pollTick)
	at := wanted
	if p.pending >= fewPolls {
		step := int64(1)
		if pause >= pollEvery {
			step = slowTicks
			at += step - 1 - (wanted+step-1)%step
		}
		room := uint16(min(int(step)*max(tickPolls, p.pending/roundTicks+1), 1<<15))
		last := max(wanted, min(wanted+int64(pollDelay/pollTick), int64((now+latestPoll)/pollTick)))
		for at < last && p.counts[at%pacedTicks] >= room {
			at += step
		}
		pause = time.Duration(at)*pollTick - now
	}
	p.counts[at%pacedTicks]++
	p.pending++
	return pause
}

// forget removes past ticks.
func (p *pollPacer) forget(now int64) {
	for n := 0; p.first < now && n < pacedTicks; n++ {
		p.pending -= int(p.counts[p.first%pacedTicks])
		p.counts[p.first%pacedTicks] = 0
		p.first++
	}
	p.first = max(p.first, now)
}
