package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// The views.
const (
	viewList      = "list"
	viewName      = "name"
	viewProcesses = "processes"
	viewWaits     = "waits"
	viewDoctor    = "doctor"
	viewEvents    = "log" // "events" is a page's stream
)

// A query is a request's view of the data. Equal queries have equal answers.
type query struct {
	view    string
	name    string // for viewName
	filter         // for viewList
	sort    string // for viewList: a view.Sorting's word
	process string // for viewProcesses: only this host:pid; empty: all
	page    int    // for viewList and viewProcesses; the first is 1
	allow   bool   // the answer contains links to the form that revokes
}

// A filter selects names. An empty field selects all.
type filter struct {
	glob    string // a part of the name, or a pattern for the whole name
	host    string // the same, for a holder's or a waiter's host
	kind    string // as view.Kinds
	waiters bool   // only names with waiters
}

// parseFilter reads a request's filter.
func parseFilter(values url.Values) (filter, error) {
	f := filter{glob: values.Get("glob"), host: values.Get("host"), kind: values.Get("kind"), waiters: values.Get("waiters") == "1"}
	if f.kind != "" && !slices.Contains(view.Kinds(), f.kind) {
		return filter{}, fmt.Errorf("%w: kind %q: want %s", driver.ErrInvalid, f.kind, strings.Join(view.Kinds(), ", "))
	}
	if text := values.Get("waiters"); text != "" && !f.waiters {
		return filter{}, fmt.Errorf("%w: waiters %q: want 1", driver.ErrInvalid, text)
	}
	for _, pattern := range []string{f.glob, f.host} {
		if _, err := parseGlob(pattern); err != nil {
			return filter{}, filterError{err, f}
		}
	}
	return f, nil
}

// parseQuery reads the query from a request for a view.
func (h *handler) parseQuery(r *http.Request, wanted string) (q query, err error) {
	values := r.URL.Query()
	q = query{view: wanted, page: 1, allow: h.config.allows(r)}
	switch wanted {
	case viewName:
		q.name = values.Get("n")
		return q, h.checkName(q.name)
	case viewList:
		q.sort = values.Get("sort")
		if q.sort == "" {
			q.sort = view.Sortings()[0].By
		}
		if _, known := view.SortingBy(view.Sortings(), q.sort); !known {
			return q, fmt.Errorf("%w: sort %q: want worst, name, ttl, waiting or held", driver.ErrInvalid, q.sort)
		}
		if q.filter, err = parseFilter(values); err != nil {
			return q, err
		}
	case viewProcesses:
		q.process = values.Get("process")
	case viewWaits, viewDoctor, viewEvents:
		return q, nil
	default:
		return q, fmt.Errorf("%w: view %q", driver.ErrInvalid, wanted)
	}
	if text := values.Get("page"); text != "" {
		q.page, err = strconv.Atoi(text)
		if err != nil || q.page < 1 {
			return q, fmt.Errorf("%w: page %q: want a positive number", driver.ErrInvalid, text)
		}
	}
	return q, nil
}

// A filterError is why a filter is not used. The page then shows all names.
type filterError struct {
	error
	typed filter
}

func (e filterError) Unwrap() error { return e.error }

// hiddenError means that Config.Glob does not match a name.
type hiddenError struct{ name string }

func (e hiddenError) Error() string { return fmt.Sprintf("name %q is not shown here", e.name) }

func (h *handler) checkName(name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if g, err := parseGlob(h.config.Glob); err != nil || !g.Matches(name) {
		return hiddenError{name}
	}
	return nil
}

// values returns the query as link parameters.
func (q query) values() url.Values {
	v := url.Values{}
	add := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	add("n", q.name)
	add("glob", q.glob)
	add("host", q.host)
	add("kind", q.kind)
	if q.waiters {
		add("waiters", "1")
	}
	if q.sort != view.Sortings()[0].By {
		add("sort", q.sort)
	}
	add("process", q.process)
	if q.page > 1 {
		v.Set("page", strconv.Itoa(q.page))
	}
	return v
}

// link returns the relative link to the query's page.
func (q query) link() string {
	path := q.view
	if q.view == viewList {
		path = "./"
	}
	return withValues(path, q.values())
}

// live returns the relative link to the page's updates: events, or fragment.
func (q query) live(path string) string {
	v := q.values()
	v.Set("view", q.view)
	return withValues(path, v)
}

func withValues(path string, v url.Values) string {
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

func nameLink(name string) string { return query{view: viewName, name: name}.link() }

func processLink(process string) string {
	return query{view: viewProcesses, process: process}.link()
}
