package main

import (
	"slices"
	"time"
)

// An acquisition is one acquisition: Lock was called, it returned, and Unlock was called.
// One that was still waiting when the run ended has only the first.
type acquisition struct {
	Waiter                 int
	Requested, Begin, Done time.Duration
}

// A history is what happened to all waiters of a process, or of all.
type history struct {
	Acquisitions []acquisition
	Failure      string
}

func (h *history) join(other history) {
	h.Acquisitions = append(h.Acquisitions, other.Acquisitions...)
	if other.Failure != "" {
		h.Failure = other.Failure
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
func (h *history) order(w window) (held []acquisition, longest time.Duration) {
	for _, s := range h.Acquisitions {
		answered := s.Begin > 0 && s.Begin < w.To
		if answered {
			held = append(held, s)
		}
		switch {
		case !answered && s.Requested < w.To:
			longest = max(longest, w.To-s.Requested)
		case s.Begin > w.From:
			longest = max(longest, s.Begin-s.Requested)
		}
	}
	slices.SortFunc(held, func(a, b acquisition) int { return int(a.Begin - b.Begin) })
	return held, longest
}
