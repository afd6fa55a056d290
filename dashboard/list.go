package dashboard

import (
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/internal/view"
)

const pageRows = 200

// A listing is the names of one page.
type listing struct {
	Rows  []listRow
	Pages pages
	Shown string // how many names match
	Empty string // why there are no rows
}

type listRow struct {
	view.Row
	Link  string
	Bar   int // width of the bar of the TTL
	Class string
}

// selected returns the states that a query selects, in its order. It returns pointers, since
// a State is large and there may be many.
func (q query) selected(states []view.State) ([]*view.State, error) {
	g, err := parseGlob(q.glob)
	if err != nil {
		return nil, err
	}
	found := make([]*view.State, 0, len(states))
	for i := range states {
		if g.Matches(states[i].Name) {
			found = append(found, &states[i])
		}
	}
	for _, s := range view.Sortings() {
		if s.By == q.sort {
			slices.SortStableFunc(found, func(x, y *view.State) int { return s.Order(*x, *y) })
		}
	}
	return found, nil
}

func listingOf(f *frame, q query) (listing, error) {
	found, err := q.selected(f.states())
	if err != nil {
		return listing{}, err
	}
	l := listing{Pages: pagesOf(q, len(found)), Shown: view.Plural(len(found), "name", "names")}
	if all := len(f.states()); len(found) < all {
		l.Shown = fmt.Sprintf("%d of %d names", len(found), all)
	}
	for _, s := range pageOf(l.Pages, found) {
		l.Rows = append(l.Rows, listRowOf(s, f.snapshot.At))
	}
	switch {
	case len(found) > 0:
	case f.snapshot.Err != nil:
		l.Empty = "The store has not answered yet."
	case len(f.states()) > 0:
		l.Empty = "No name matches the filter."
	default:
		l.Empty = "Nothing is held."
	}
	return l, nil
}

func listRowOf(s *view.State, at time.Time) listRow {
	r := listRow{Row: s.Row(at), Link: nameLink(s.Name), Class: "name"}
	left := time.Duration(-1)
	for _, h := range s.Holders {
		if d := h.Left(); d >= 0 && (left < 0 || d < left) {
			left = d
		}
	}
	if s.Foreign != nil {
		r.Class = "name foreign"
	}
	r.Bar = barOf(left)
	return r
}

// barOf returns the width of the bar of a TTL, of barWidth. A bar is full at 30 s, the default
// lease TTL.
func barOf(left time.Duration) int {
	const full = 30 * time.Second
	if left < 0 {
		return 0
	}
	return int(min(left, full) * barWidth / full)
}

const barWidth = 40

// pages are links to the other pages of a list.
type pages struct {
	Number, Count    int
	Previous, Next   string // links; empty: there is none
	First, Last, All int    // rows of this page, counted from 1
}

// pagesOf divides a number of rows into pages. A page after the last one is the last one.
func pagesOf(q query, rows int) pages {
	p := pages{Count: max(1, (rows+pageRows-1)/pageRows), All: rows}
	p.Number = min(q.page, p.Count)
	p.First, p.Last = min((p.Number-1)*pageRows+1, rows), min(p.Number*pageRows, rows)
	to := func(page int) string {
		q.page = page
		return q.link()
	}
	if p.Number > 1 {
		p.Previous = to(p.Number - 1)
	}
	if p.Number < p.Count {
		p.Next = to(p.Number + 1)
	}
	return p
}

// pageOf returns the rows of a page.
func pageOf[T any](p pages, all []T) []T { return all[max(p.First-1, 0):p.Last] }
