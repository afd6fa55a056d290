package main

import (
	"cmp"
	"fmt"
	"math"
)

// A bar is a limit for dibs in a column, at every load.
type bar struct {
	column string
	least  float64
	most   float64
	beats  float64 // factor over every other peer except baselines, or 0
}

func atLeast(column string, v float64) bar { return bar{column: column, least: v, most: math.Inf(1)} }

func atMost(column string, v float64) bar { return bar{column: column, least: math.Inf(-1), most: v} }

// aboveAll requires that no other peer is better.
func aboveAll(column string) bar { return timesAll(column, 1) }

func timesAll(column string, times float64) bar {
	return bar{column: column, least: math.Inf(-1), most: math.Inf(1), beats: times}
}

// ours is the peer to which the bars apply, unless the table names another.
const ours = "dibs"

// missed describes the bars missed by dibs. A missing figure can reach no bar.
func (t *table) missed() (missed []string) {
	for _, r := range t.rows {
		if r.peer != cmp.Or(t.ours, ours) {
			continue
		}
		for _, b := range t.bars {
			for _, text := range t.misses(r, b) {
				missed = append(missed, fmt.Sprintf("%s%s: %s", t.name, t.where(r), text))
			}
		}
	}
	return missed
}

func (t *table) where(r *row) string {
	if t.load == "" {
		return ""
	}
	return fmt.Sprintf(", %s %s", t.load, r.group)
}

func (t *table) misses(r *row, b bar) (missed []string) {
	c := t.column(b.column)
	v := r.value(c)
	shown := format(v, c.digits)
	switch {
	case math.IsNaN(v):
		return []string{c.name + " was not measured"}
	case v < b.least:
		missed = append(missed, fmt.Sprintf("%s %s, want at least %v", c.name, shown, b.least))
	case v > b.most:
		missed = append(missed, fmt.Sprintf("%s %s, want at most %v", c.name, shown, b.most))
	}
	for _, other := range t.rows {
		if other == r || other.group != r.group || isBaseline(other.peer) || !(b.beats*other.value(c) > v) {
			continue
		}
		text := fmt.Sprintf("%s %s, %s has %s", c.name, shown, other.peer, format(other.value(c), c.digits))
		if b.beats > 1 {
			text += fmt.Sprintf(", want %v times that", b.beats)
		}
		missed = append(missed, text)
	}
	return missed
}
