package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/dashboard/watch"
)

// The history covers an hour, if the store is polled all the time.
const (
	maxPoints = 360
	pointTime = 10 * time.Second // the shortest time for a point
	pointGap  = 3 * pointTime    // after a longer time between two polls, nothing is known about it, unless polls are rare
)

// A history remembers the last polls' counts, joined to points. The zero value is empty. It is safe
// for concurrent use.
type history struct {
	every time.Duration // the pause between two polls

	mu     sync.Mutex
	ring   [maxPoints]point
	next   int       // where the next point is put
	open   point     // the polls after the last point
	polled time.Time // when the last poll ended
}

// A point contains the results from some polls.
type point struct {
	At      time.Time     // when the last poll ended
	Over    time.Duration // the time before At in which Grants were counted
	Held    int           // names, the maximum over the polls
	Waiting int           // waiters, the maximum over the polls
	Longest time.Duration // the longest wait
	Grants  int           // leases that began, if seen by a poll
}

// rate returns how many leases began per second.
func (p point) rate() float64 {
	if p.Over <= 0 {
		return 0
	}
	return float64(p.Grants) / p.Over.Seconds()
}

// add adds a poll that ended at some time.
func (h *history) add(at time.Time, c view.Counts, grants int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	passed := at.Sub(h.polled)
	if h.polled = at; passed > max(pointGap, 3*h.every) {
		h.open = point{At: at, Held: c.Held, Waiting: c.Waiting, Longest: c.Longest}
		return
	}
	h.open = point{
		At: at, Over: h.open.Over + passed, Held: max(h.open.Held, c.Held), Waiting: max(h.open.Waiting, c.Waiting),
		Longest: max(h.open.Longest, c.Longest), Grants: h.open.Grants + grants,
	}
	if h.open.Over < pointTime {
		return
	}
	h.ring[h.next%maxPoints] = h.open
	h.next++
	h.open = point{}
}

// points returns the last hour's points, the oldest first.
func (h *history) points(now time.Time) (all []point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := max(h.next-maxPoints, 0); i < h.next; i++ {
		if p := h.ring[i%maxPoints]; now.Sub(p.At) < maxPoints*pointTime {
			all = append(all, p)
		}
	}
	return all
}

// polled records a snapshot.
func (h *handler) polled(s *watch.Snapshot) {
	h.metrics.add(s)
	if s.Err == nil {
		h.history.add(s.At, view.CountsOf(s.Names()), grantsOf(s.Changes))
	}
}

// recordShare is the pause between two of Record's polls, in units of a poll's duration.
const recordShare = 49

// Record polls the store until ctx ends, even while no page is open. After a slow poll, it pauses
// longer than Config.Every: 49 times as long as the poll took, up to 10 s. So polls of up to 0.2 s
// use at most 2 % of the time. Without Record, the history, the events and the counters in /metrics
// contain only the times when a page was open.
func (d *Dashboard) Record(ctx context.Context) {
	for ctx.Err() == nil {
		pause := pointTime
		if s, err := d.hub.Latest(ctx); err == nil {
			pause = min(recordShare*s.Took, pause)
		}
		timer := time.NewTimer(max(pause, d.config.Every))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

type historyAnswer struct {
	Schema int           `json:"schema"`
	Points []pointAnswer `json:"points"`
}

type pointAnswer struct {
	Time    time.Time `json:"time"`
	Over    int64     `json:"over_ms"`
	Held    int       `json:"held"`
	Waiting int       `json:"waiting"`
	Longest int64     `json:"longest_wait_ms"`
	Grants  int       `json:"grants"`
}

func (h *handler) apiHistory(w http.ResponseWriter, _ *http.Request) {
	answer := historyAnswer{Schema: view.Schema, Points: []pointAnswer{}}
	for _, p := range h.history.points(time.Now()) {
		answer.Points = append(answer.Points, pointAnswer{
			p.At.UTC().Truncate(time.Millisecond), p.Over.Milliseconds(), p.Held, p.Waiting, p.Longest.Milliseconds(), p.Grants,
		})
	}
	h.writeJSON(w, http.StatusOK, answer)
}
