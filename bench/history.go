package main

import (
	"slices"
	"time"
)

// An acquisition has three times: Lock was called, Lock returned, and Unlock was called. If it was
// still waiting at the end of the run, only the first is set.
type acquisition struct {
	Waiter                 int
	Requested, Begin, Done time.Duration
}

// A history contains all waiters' acquisitions, in a process or in all processes.
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

// figures evaluates a window of a history. It counts acquisitions begun within the window. A wait
// that did not end within the window counts with its length at that time.
func (h *history) figures(w window, waiters int) figures {
	held, longest := h.order(w)
	shares, byProcess := make([]float64, waiters), make([]float64, min(waiters, processes))
	var gaps, passes, handoffs []float64
	var free time.Duration // latest release so far
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
		byProcess[s.Waiter%processes]++
		switch {
		case i == 0:
		case held[i-1].Waiter == s.Waiter:
			self++
		default:
			gap := micros(s.Begin - held[i-1].Done)
			gaps = append(gaps, gap)
			if s.Waiter%processes == held[i-1].Waiter%processes {
				passes = append(passes, gap)
			} else {
				handoffs = append(handoffs, gap)
			}
		}
	}
	n := sum(shares)
	return figures{
		"acquisitions": n,
		"acq/s":        n / (w.To - w.From).Seconds(),
		"p50 µs":       percentile(gaps, 0.5),
		"mean µs":      mean(gaps),
		"pass µs":      mean(passes),
		"handoff µs":   mean(handoffs),
		"Jain":         jain(shares),
		"fairness":     jain(byProcess),
		"self":         float64(self) / n,
		"longest ms":   millis(longest),
		"starved":      float64(starved(shares)),
		"overlaps":     float64(overlaps),
	}
}

// order returns the acquisitions begun before the window's end, sorted by their begin, and the
// longest wait within the window.
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
