package dibs

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"time"
)

// never is a time in the infinite future.
const never = time.Duration(math.MaxInt64)

// A renewer sorts the leases of a client by the time of their next action, which is a
// renewal or the deadline. It neither renews nor ends a lease, and calls nothing while it
// holds its lock. A lease calls it while it holds its own lock. It is safe for concurrent
// use.
type renewer struct {
	wake chan struct{} // wakes the scheduler

	mu           sync.Mutex
	closed       bool
	leases       schedule
	partlyLost   map[*lease]struct{} // multi-locks that lost one name and still hold others
	shortestWait time.Duration       // of the leases scheduled since the last tick, the shortest time to the next action
	wakeAt       time.Duration       // when the scheduler wakes without a signal
	renewedAllAt time.Duration       // when all leases were last made due together, or zero
	reconnects   throttle            // each reconnect makes all leases due
}

func newRenewer() *renewer {
	return &renewer{wake: make(chan struct{}, 1), wakeAt: never, shortestWait: never, partlyLost: make(map[*lease]struct{})}
}

// scheduled is the place of a lease in a renewer, guarded by its lock.
type scheduled struct {
	at    time.Duration // of the next action
	early int32         // µs; the action may be done this long before, to share a batch
	index int32         // in the schedule, plus one; or zero
}

// earliest returns when the action may be done.
func (s scheduled) earliest() time.Duration { return s.at - time.Duration(s.early)*time.Microsecond }

// schedule is a heap of leases, sorted by the time of the next action.
type schedule []*lease

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].next.at < s[j].next.at }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].next.index, s[j].next.index = int32(i+1), int32(j+1)
}

func (s *schedule) Push(x any) {
	h := x.(*lease)
	*s = append(*s, h)
	h.next.index = int32(len(*s))
}

func (s *schedule) Pop() any {
	old := *s
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	h.next.index = 0
	return h
}

// set schedules the next action of a lease. It returns false after close.
func (r *renewer) set(h *lease, now, at, early time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	h.next.at, h.next.early = at, int32(early.Microseconds())
	if h.next.index == 0 {
		heap.Push(&r.leases, h)
	} else {
		heap.Fix(&r.leases, int(h.next.index-1))
	}
	r.shortestWait = min(r.shortestWait, at-now)
	if at < r.wakeAt { // rare
		r.signal()
	}
	return true
}

func (r *renewer) remove(h *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.next.index > 0 {
		heap.Remove(&r.leases, int(h.next.index-1))
	}
}

// keepPartlyLost keeps a lease that lost one of its names, for close.
func (r *renewer) keepPartlyLost(h *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partlyLost[h] = struct{}{}
}

func (r *renewer) removePartlyLost(h *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.partlyLost, h)
}

// all returns the scheduled leases.
func (r *renewer) all() []*lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.leases)
}

// holds reports whether there is a lease.
func (r *renewer) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leases) > 0
}

// close removes all leases, and returns those that are held and those that are partly
// lost.
func (r *renewer) close() (held, partlyLost []*lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	held, r.leases = r.leases, nil
	for _, h := range held {
		h.next.index = 0
	}
	for h := range r.partlyLost {
		partlyLost = append(partlyLost, h)
	}
	clear(r.partlyLost)
	return held, partlyLost
}

// popDue returns the leases that are due, with those that may be acted on early. If none is
// due, it returns none. They stay in the schedule, at the end, until the caller sets their
// next action.
func (r *renewer) popDue(now time.Duration) (due []*lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leases) == 0 || r.leases[0].next.at > now {
		return nil
	}
	for len(r.leases) > 0 && r.leases[0].next.earliest() <= now {
		h := r.leases[0]
		h.next.at, h.next.early = never, 0
		heap.Fix(&r.leases, 0)
		due = append(due, h)
	}
	return due
}

// startReconnect reports whether all leases are due because of a reconnect.
func (r *renewer) startReconnect(now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reconnects.open(now) {
		return false
	}
	r.renewedAllAt = now
	return true
}

// sleep returns how long the scheduler sleeps without a signal.
func (r *renewer) sleep(now time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A timer stops while the machine is suspended; the TTL of a lease does not.
	r.wakeAt = now + time.Second
	switch {
	case len(r.leases) > 0:
		r.wakeAt = min(r.wakeAt, r.leases[0].next.at)
	case r.shortestWait == never: // no lease was scheduled since the last tick
		r.wakeAt = now + time.Hour
	}
	if r.shortestWait < never {
		// More leases like these will probably come and end before their first action. An
		// early tick spares each of them the wake-up.
		r.wakeAt = min(r.wakeAt, now+max(r.shortestWait, 0))
	}
	r.shortestWait = never
	r.wakeAt = min(r.wakeAt, max(r.reconnects.next(), now))
	return r.wakeAt - now
}

// reconnected makes all leases due soon, but not again and again if the connection to the
// store flaps.
func (r *renewer) reconnected(now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reconnects.request(now)
	r.signal()
}

// mayRenewAll reports whether all leases may be made due now. It returns false if they
// were made due less than 1 s ago. If one of several servers is down for long, successes
// and failures alternate, and each success would renew all leases.
func (r *renewer) mayRenewAll(now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewedAllAt != 0 && now-r.renewedAllAt < time.Second {
		return false
	}
	r.renewedAllAt = now
	return true
}

// signal wakes the scheduler.
func (r *renewer) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
