package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

const pageRows = 200

// A listing contains a page's names.
type listing struct {
	Rows  []listRow
	Last  []spark               // for the last hour
	Heads map[string]columnHead // by the order's word
	Pages pages
	Shown string // how many names match
	Empty string // why there are no rows
}

// A columnHead is the link that sorts by a column.
type columnHead struct {
	Link    string
	Current bool
}

// headsOf returns the links that sort, on the first page.
func headsOf(q query) map[string]columnHead {
	heads := make(map[string]columnHead)
	for _, s := range view.Sortings() {
		other := q
		other.sort, other.page = s.By, 1
		heads[s.By] = columnHead{other.link(), s.By == q.sort}
	}
	return heads
}

type listRow struct {
	view.Row
	Link  string
	Bar   int // width of the TTL bar
	Class string
}

// matcherOf returns a function for a pattern's matches: without wildcards, all texts that contain
// it.
func matcherOf(pattern string) (func(text string) bool, error) {
	if !strings.ContainsAny(pattern, `*?[\`) {
		return func(text string) bool { return strings.Contains(text, pattern) }, nil
	}
	g, err := parseGlob(pattern)
	return g.Matches, err
}

// matcher returns a function that selects by the filter.
func (f filter) matcher() (func(view.Summary) bool, error) {
	name, err := matcherOf(f.glob)
	if err != nil {
		return nil, err
	}
	host, err := matcherOf(f.host)
	if err != nil {
		return nil, err
	}
	return func(n view.Summary) bool {
		return name(n.Name) && (f.kind == "" || n.Kind == f.kind) && (!f.waiters || n.Waiting > 0) &&
			(f.host == "" || slices.ContainsFunc(n.Hosts, func(h unique.Handle[string]) bool { return host(h.Value()) }))
	}, nil
}

// selected returns the names that a query selects, in its order.
func (q query) selected(names []view.Summary) ([]view.Summary, error) {
	matches, err := q.matcher()
	if err != nil {
		return nil, err
	}
	found := make([]view.Summary, 0, len(names))
	for _, n := range names {
		if matches(n) {
			found = append(found, n)
		}
	}
	if s, known := view.SortingBy(view.Sortings(), q.sort); known {
		s.Sort(found)
	}
	return found, nil
}

// statesOf returns the states of the names on a page, in their order. With many names, a frame does
// not contain all states: the others are read now, and by the next polls.
func (h *handler) statesOf(ctx context.Context, f *frame, names []view.Summary) ([]view.State, error) {
	states, missing := make(map[string]driver.State, len(names)), []string{}
	var all []string
	for _, n := range names {
		state, found := f.snapshot.State(n.Name)
		if states[n.Name] = state; !found {
			missing = append(missing, n.Name)
		}
		all = append(all, n.Name)
	}
	if f.snapshot.Rest != nil {
		h.hub.Display(f.snapshot, all)
	}
	if len(missing) > 0 && f.snapshot.Err == nil {
		read, err := h.poller.All(context.WithoutCancel(ctx), missing) // others may use the result
		if err != nil {
			return nil, err
		}
		for _, state := range read {
			states[state.Name] = state
		}
	}
	shown := make([]view.State, 0, len(names))
	for _, name := range all {
		if state := states[name]; state.Name != "" { // else it was released meanwhile
			shown = append(shown, view.StateOf(state, f.snapshot.At))
		}
	}
	return shown, nil
}

func (h *handler) listingOf(ctx context.Context, f *frame, q query) (listing, error) {
	found, err := q.selected(f.names())
	if err != nil {
		return listing{}, err
	}
	l := listing{Last: sparksOf(h.history.points(f.snapshot.At), f.snapshot.At), Heads: headsOf(q), Pages: pagesOf(q, len(found)), Shown: view.Plural(len(found), "name", "names")}
	all := len(f.names())
	if len(found) < all {
		l.Shown = fmt.Sprintf("%d of %d names", len(found), all)
	}
	if f.snapshot.Rest != nil {
		l.Shown += ", counted at " + clock(f.snapshot.Rest.Taken, f.snapshot.At)
	}
	states, err := h.statesOf(ctx, f, pageOf(l.Pages, found))
	if err != nil {
		return listing{}, err
	}
	for i := range states {
		l.Rows = append(l.Rows, listRowOf(&states[i], f.snapshot.At))
	}
	switch {
	case len(found) > 0:
	case f.snapshot.Err != nil:
		l.Empty = "The store has not answered yet."
	case all > 0:
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

// barOf returns the width of a TTL's bar, up to barWidth. A bar is full at 30 s, the default lease
// TTL.
func barOf(left time.Duration) int {
	const full = 30 * time.Second
	if left < 0 {
		return 0
	}
	return int(min(left, full) * barWidth / full)
}

const barWidth = 40

// pages are links to a list's other pages.
type pages struct {
	Number, Count    int
	Previous, Next   string // links; empty: there is none
	First, Last, All int    // rows on this page, counted from 1
}

// pagesOf divides a number of rows into pages. A page after the last page is treated as the last.
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

// pageOf returns a page's rows.
func pageOf[T any](p pages, all []T) []T { return all[max(p.First-1, 0):p.Last] }
