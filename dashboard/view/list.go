package view

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// List returns ls's table, fitted to width unless it is zero.
func List(names []State, now time.Time, width int) Table {
	var t Table
	t.Row("NAME", "KIND", "HOLDER", "TTL", "HELD", "WAIT", "FENCE")
	for _, n := range names {
		r := n.Row(now)
		t.Row(r.Name, orDash(r.Kind), orDash(r.Holder), orDash(r.TTL), orDash(r.Held), strconv.Itoa(r.Wait), orDash(r.Fence))
	}
	return t.Fit(width, optional(names)...)
}

// optional returns a list's columns to omit if there is no room, in this order.
func optional(names []State) []string {
	return optionalIf(slices.ContainsFunc(names, func(n State) bool { return n.Foreign != nil }))
}

// optionalIf returns the optional columns: a foreign lock's kind matters more than the name's
// holder.
func optionalIf(foreign bool) []string {
	if foreign {
		return []string{"FENCE", "HELD", "HOLDER", "KIND"}
	}
	return []string{"FENCE", "KIND", "HELD", "HOLDER"}
}

// A Sorting is an order for names, with its word.
type Sorting struct {
	By    string
	order func(x, y Summary) int
}

// Orders are ls's orders for names, the default first.
var Orders = []Sorting{
	{"name", func(x, y Summary) int { return cmp.Compare(x.Name, y.Name) }},
	{"ttl", func(x, y Summary) int { return cmp.Compare(neverLast(x.Left), neverLast(y.Left)) }},
	{"waiting", func(x, y Summary) int { return cmp.Compare(y.Waiting, x.Waiting) }},
	{"held", func(x, y Summary) int { return cmp.Compare(x.Fence-1, y.Fence-1) }}, // zero, not known, is last
}

// Sortings returns the orders for top and for the dashboard, the default first.
func Sortings() []Sorting { return append([]Sorting{{"worst", byWorst}}, Orders...) }

// SortingBy returns the order with a word.
func SortingBy(all []Sorting, word string) (s Sorting, found bool) {
	i := slices.IndexFunc(all, func(s Sorting) bool { return s.By == word })
	if i < 0 {
		return s, false
	}
	return all[i], true
}

// neverLast maps -1, which means never, to a value that sorts last.
func neverLast(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

// byWorst sorts by the longest wait, then by the number of waiters, then names that never expire.
func byWorst(x, y Summary) int {
	never := func(n Summary) int {
		if n.Never {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(y.Longest, x.Longest), cmp.Compare(y.Waiting, x.Waiting), cmp.Compare(never(y), never(x)))
}
