package dashboard

import (
	"context"
	"embed"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/dashboard/watch"
	"github.com/dibslock/dibs/driver"
)

//go:embed static
var files embed.FS

// A Dashboard is an http.Handler with web pages about a store. It is safe for concurrent use.
type Dashboard struct{ *handler }

// New returns a dashboard for a store. The dashboard's links are relative: mount it with
// http.StripPrefix at any path that ends with a slash. It needs no Close: its goroutines end when
// no request needs a poll and Record does not run.
func New(store driver.Store, c Config) *Dashboard {
	c = c.withDefaults()
	full := driver.Complete(store)
	poller := watch.Poller{Store: full, Timeout: c.Timeout}
	h := &handler{
		store: full, config: c, poller: poller, metrics: newMetrics(), history: history{every: c.Every},
		secrets: newSecrets(), runs: &doctorRuns{doctor: c.Doctor}, origin: http.NewCrossOriginProtection(),
	}
	h.hub = watch.NewHub(poller, c.Glob, c.Every, h.polled)
	get := func(f http.HandlerFunc) route { return route{http.MethodGet, f} }
	h.routes = map[string]route{
		"/":                get(h.page(viewList)),
		"/name":            get(h.page(viewName)),
		"/processes":       get(h.page(viewProcesses)),
		"/waits":           get(h.page(viewWaits)),
		"/doctor":          get(h.page(viewDoctor)),
		"/log":             get(h.page(viewEvents)),
		"/events":          get(h.events),
		"/fragment":        get(h.fragment),
		"/api/names":       get(h.apiNames),
		"/api/name":        get(h.apiName),
		"/api/processes":   get(h.apiProcesses),
		"/api/waits":       get(h.apiWaits),
		"/api/findings":    get(h.apiFindings),
		"/api/history":     get(h.apiHistory),
		"/api/events":      get(h.apiEvents),
		"/api/revocations": get(h.apiRevocations),
		"/metrics":         get(h.serveMetrics),
		"/revoke":          {http.MethodPost, h.revoke},
		"/healthz":         get(healthz),
		"/static/page.css": get(static("page.css", "text/css; charset=utf-8")),
		"/static/page.js":  get(static("page.js", "text/javascript; charset=utf-8")),
		"/static/icon.svg": get(static("icon.svg", "image/svg+xml")),
	}
	return &Dashboard{h}
}

type handler struct {
	store   *driver.Full
	config  Config
	poller  watch.Poller
	hub     *watch.Hub
	frames  frames
	history history
	metrics *metrics
	runs    *doctorRuns
	secrets secrets
	origin  *http.CrossOriginProtection
	routes  map[string]route
	streams atomic.Int64
}

type route struct {
	method string // GET is also HEAD
	serve  http.HandlerFunc
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	path := "/" + strings.TrimPrefix(r.URL.Path, "/")
	route, known := h.routes[path]
	switch {
	case !known:
		h.refuse(w, r, "", refusal{http.StatusNotFound, "No such page", "The address is not that of a page of this dashboard."})
	case r.Method != route.method && (r.Method != http.MethodHead || route.method != http.MethodGet):
		w.Header().Set("Allow", route.method)
		h.refuse(w, r, "", refusal{http.StatusMethodNotAllowed, "Not possible", "This address accepts " + route.method + " only."})
	default:
		route.serve(w, r)
	}
}

// protect sets each answer's headers. Only the dashboard's own files are loaded, nothing is kept in
// a cache, and no other site can show a page in a frame.
func protect(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
}

// firstPoll is the longest time that a page waits for the states. A poll lists all names, which
// takes long on a large shared Redis.
const firstPoll = 10 * time.Second

// latest returns the current frame. If there is none in time, the frame contains only the error.
func (h *handler) latest(ctx context.Context) *frame {
	ctx, cancel := context.WithTimeout(ctx, firstPoll)
	defer cancel()
	s, err := h.hub.Latest(ctx)
	if err != nil {
		return newFrame(&watch.Snapshot{Err: &driver.UnavailableError{Op: "list", Cause: err}})
	}
	return h.frames.of(s)
}
