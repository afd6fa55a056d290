package view

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// List returns the table of ls, fitted to width unless that is zero.
func List(names []State, now time.Time, width int) Table {
	var t Table
	t.Row("NAME", "KIND", "HOLDER", "TTL", "HELD", "WAIT", "FENCE")
	for _, n := range names {
		r := n.Row(now)
		t.Row(r.Name, orDash(r.Kind), orDash(r.Holder), orDash(r.TTL), orDash(r.Held), strconv.Itoa(r.Wait), orDash(r.Fence))
	}
	return t.Fit(width, optional(names)...)
}

// optional returns the columns of a list that are omitted if there is no room, in this
// order. What a foreign lock is matters more than the holder of a name.
func optional(names []State) []string {
	if slices.ContainsFunc(names, func(n State) bool { return n.Foreign != nil }) {
		return []string{"FENCE", "HELD", "HOLDER", "KIND"}
	}
	return []string{"FENCE", "KIND", "HELD", "HOLDER"}
}

// Orders are the orders of names that ls offers. They compare two states of a list that is
// sorted by name.
var Orders = map[string]func(x, y State) int{
	"name":    func(x, y State) int { return cmp.Compare(x.Name, y.Name) },
	"ttl":     func(x, y State) int { return cmp.Compare(neverLast(x.left()), neverLast(y.left())) },
	"waiting": func(x, y State) int { return cmp.Compare(y.Waiting, x.Waiting) },
}

// A Sorting is an order of names by its word.
type Sorting struct {
	By    string
	Order func(x, y State) int // as in Orders
}

// Sortings returns the orders of top and of the dashboard, the default first.
func Sortings() []Sorting {
	return []Sorting{{"worst", byWorst}, {"name", Orders["name"]}, {"ttl", Orders["ttl"]}, {"waiting", Orders["waiting"]}}
}

// neverLast maps -1, which means never, to a value that sorts last.
func neverLast(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

// byWorst sorts by the longest wait, then by the number of waiters, then names that never
// expire.
func byWorst(x, y State) int {
	never := func(n State) int {
		if n.neverExpires() {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(y.longestWait(), x.longestWait()), cmp.Compare(y.Waiting, x.Waiting), cmp.Compare(never(y), never(x)))
}
