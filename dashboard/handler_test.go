package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// busyStore contains a mutex with a waiter, a semaphore, readers, and two processes that wait for
// each other.
func busyStore(t testing.TB) *memstore.Store {
	t.Helper()
	s := memstore.New()
	one, two := tokenOf("web-7", 211, driver.KindMutex, 1, "cron"), tokenOf("web-9", 88, driver.KindMutex, 1, "")
	acquire(t, s, "account:1", one)
	acquire(t, s, "account:2", two)
	acquire(t, s, "account:1", two)
	acquire(t, s, "account:2", one)
	permits := func(host string, weight int) {
		request(t, s, driver.AcquireRequest{Name: "api:partner", Token: tokenOf(host, 7, driver.KindSemaphore, 4, "sync"), Weight: weight, Limit: 4})
	}
	permits("worker-1", 3)
	permits("worker-2", 2)
	reader := tokenOf("web-2", 77, driver.KindReader, driver.Unlimited, "")
	request(t, s, driver.AcquireRequest{Name: "report", Token: reader, Weight: 1, Limit: driver.Unlimited})
	return s
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(busyStore(t), Config{Title: "shop-redis"})
		for link, parts := range map[string][]string{
			"":                             {"shop-redis", "account:1", "web-7:211 (cron)", "<bdi>api:partner</bdi></a>", "report", "held</span> <b>4</b>", "waiting</span> <b>3</b>", "4 names", "read-only", "2 processes wait for each other"},
			"?glob=account:*":              {"2 of 4 names", "account:2", `value="account:*"`},
			"?glob=nothing":                {"No name matches the filter."},
			"?glob=count":                  {"2 of 4 names", "account:2", `value="count"`},
			"?sort=ttl&glob=count":         {`aria-sort="other"><a href="./?glob=count&amp;sort=ttl">TTL</a>`, `<a href="./?glob=count">Oldest wait</a>`},
			"?sort=name":                   {`<option value="name" selected>name`},
			"name?n=account:1":             {"This name is held: mutex, by one holder.", "web-7:211 (cron)", "web-9:88", ">mutex<", ">all<", "Recent events", "held"},
			"name?n=api:partner":           {"3 of 4", "2 of 4", ">semaphore<", "worker-2:7 (sync)"},
			"name?n=report":                {">reader<"},
			"name?n=free":                  {"This name is free."},
			"processes":                    {"web-7:211", "holds 1", "waits for 1", "semaphore 3 of 4 (<bdi>sync</bdi>)", "position 1"},
			"processes?process=web-9%3A88": {"Only", "web-9:88", "Show all"},
			"processes?process=x":          {"This process holds nothing"},
			"waits":                        {"2 processes wait for each other", "<svg", "account:1", "All waits", `class="node cycle"`},
			"doctor":                       {"This dashboard has no doctor."},
			"log":                          {"All names", "<b>waiting</b>", "web-9:88", "Found by polling, since"},
			"healthz":                      {"ok"},
		} {
			wantText(t, body(t, h, link), parts...)
		}
		wantNoText(t, body(t, h, "?glob=account:*"), "api:partner")
		wantNoText(t, body(t, h, "processes?process=web-9%3A88"), "worker-1")
	})
}

// Tokens never leave the server, in no view and no answer.
func TestTokensAreShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(busyStore(t), Config{Allow: anybody})
		for _, link := range []string{
			"", "name?n=account:1", "name?n=api:partner", "processes", "waits", "fragment?view=name&n=account:1",
			"api/names", "api/name?n=account:1", "api/processes", "api/waits",
		} {
			wantNoText(t, body(t, h, link), "secretsecret", "clientclientclient")
		}
	})
}

func TestEmptyStore(t *testing.T) {
	h := New(memstore.New(), Config{})
	wantText(t, body(t, h, ""), "Nothing is held.")
	wantText(t, body(t, h, "processes"), "No process holds")
	wantText(t, body(t, h, "waits"), "No process waits for another.")
	wantNoText(t, body(t, h, ""), "note bad", "note odd")
}

// An invalid filter should leave the page as it is, with the reason and the typed text.
func TestInvalidFilter(t *testing.T) {
	w := get(t, New(held(t, "order:42"), Config{}), "?glob=%5Ba&sort=name")
	wantStatus(t, w, http.StatusBadRequest, "The filter is not used: ", `value="[a"`, "order:42", `selected>name</option>`, `data-events="events?sort=name&amp;view=list"`)
}

// If a quorum node does not answer, each page names it.
func TestNodeThatIsDown(t *testing.T) {
	s := &changedStore{Full: driver.Complete(held(t, "a")), change: func(s *driver.State) {
		s.Nodes = []driver.NodeState{{}, {Err: &driver.UnavailableError{Op: "inspect", Cause: errors.New("connection refused")}}, {Err: errors.New("NOPERM")}}
	}}
	h := New(s, Config{})
	for _, link := range []string{"", "processes", "waits"} {
		text := body(t, h, link)
		wantText(t, text, "Node 1 of the quorum does not answer: ", "connection refused")
		wantNoText(t, text, "Node 0", "Node 2")
	}
}

func TestRefusedRequests(t *testing.T) {
	h := New(held(t, "a"), Config{Glob: "[a-z]"})
	for link, want := range map[string]struct {
		status int
		text   string
	}{
		"nothing":                            {http.StatusNotFound, "No such page"},
		"static/":                            {http.StatusNotFound, "No such page"},
		"static/missing.css":                 {http.StatusNotFound, "No such page"},
		"?glob=%5Ba":                         {http.StatusBadRequest, "pattern"},
		"?sort=colour":                       {http.StatusBadRequest, "want worst, name, ttl, waiting or held"},
		"?host=%5Ba":                         {http.StatusBadRequest, "pattern"},
		"?kind=lock":                         {http.StatusBadRequest, "want mutex, reader"},
		"?waiters=yes":                       {http.StatusBadRequest, "want 1"},
		"?page=0":                            {http.StatusBadRequest, "want a positive number"},
		"?page=x":                            {http.StatusBadRequest, "want a positive number"},
		"name":                               {http.StatusBadRequest, "empty name"},
		"name?n=%ff":                         {http.StatusBadRequest, "not UTF-8"},
		"name?n=" + strings.Repeat("x", 513): {http.StatusBadRequest, "513 bytes"},
		"name?n=A":                           {http.StatusNotFound, "not shown here"},
		"events":                             {http.StatusBadRequest, "view"},
		"events?view=page":                   {http.StatusBadRequest, "view"},
		"fragment?view=head":                 {http.StatusBadRequest, "view"},
		"revoke":                             {http.StatusMethodNotAllowed, "POST only"},
		"api/names?glob=%5Ba":                {http.StatusBadRequest, `{"schema":`},
		"api/names?waiters=0":                {http.StatusBadRequest, `{"schema":`},
		"api/name?n=A":                       {http.StatusNotFound, `"error":`},
		"api/nothing":                        {http.StatusNotFound, `"error":`},
	} {
		t.Run(link, func(t *testing.T) { wantStatus(t, get(t, h, link), want.status, want.text) })
	}
}

// The list should be filtered by host and kind, for all holders and waiters, even if a poll reads
// few names. A stream should have the same rows.
func TestFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := busyStore(t)
		for i := range 5000 {
			acquire(t, s, fmt.Sprintf("many:%04d", i), tokenOf("web-1", 5, driver.KindOnce, 1, ""))
		}
		h := New(s, Config{})
		for link, want := range map[string][]string{
			"?host=web-9":                       {"account:1", "account:2"},
			"?host=WORKER":                      nil,
			"?host=worker-2":                    {"api:partner"},
			"?host=wor*":                        {"api:partner"},
			"?host=web-[27]":                    {"account:1", "account:2", "report"},
			"?kind=semaphore":                   {"api:partner"},
			"?kind=reader":                      {"report"},
			"?kind=foreign":                     nil,
			"?waiters=1":                        {"account:1", "account:2", "api:partner"},
			"?waiters=1&kind=mutex&host=web-7":  {"account:1", "account:2"},
			"?waiters=1&kind=mutex&glob=unt:1":  {"account:1"},
			"?kind=once&glob=4999":              {"many:4999"},
			"?kind=once&waiters=1&sort=waiting": nil,
			"?kind=once&host=web-1&glob=*:499?": {"many:4990", "many:4991", "many:4992", "many:4993", "many:4994", "many:4995", "many:4996", "many:4997", "many:4998", "many:4999"},
		} {
			page := body(t, h, link)
			if have := rowsOf(page); !slices.Equal(have, want) {
				t.Errorf("%s: want %q, have %q", link, want, have)
			}
			var answer namesAnswer
			if err := json.Unmarshal([]byte(body(t, h, "api/names"+link)), &answer); err != nil || answer.Matches != len(want) {
				t.Errorf("%s: want %d names, have %d, %v", link, len(want), answer.Matches, err)
			}
			fragment := html.UnescapeString(regexp.MustCompile(`data-fragment="([^"]*)"`).FindStringSubmatch(page)[1])
			if have := rowsOf(body(t, h, fragment)); !slices.Equal(have, want) {
				t.Errorf("%s: want %q, have %q", fragment, want, have)
			}
		}
		wantText(t, body(t, h, "?host=web-9&kind=mutex&waiters=1"), `name="host" value="web-9"`, `<option value="mutex" selected>`, `value="1" checked`, ">Clear<",
			`href="./?host=web-9&amp;kind=mutex&amp;sort=ttl&amp;waiters=1"`)
	})
}

// rowsOf returns a list's names, sorted.
func rowsOf(page string) (names []string) {
	for _, found := range regexp.MustCompile(`<tr data-row><td class="name[^"]*"><a [^>]*><bdi>([^<]*)<`).FindAllStringSubmatch(page, -1) {
		names = append(names, html.UnescapeString(found[1]))
	}
	slices.Sort(names)
	return names
}

// A GET changes nothing, and all other methods are refused.
func TestMethods(t *testing.T) {
	h := New(held(t, "a"), Config{Allow: anybody})
	for _, link := range []string{"/", "/name?n=a", "/api/names", "/events?view=list", "/healthz", "/static/page.js"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, link, nil))
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodGet {
				t.Errorf("%s %s: status %d, Allow %q", method, link, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/name?n=a", nil))
	wantStatus(t, w, http.StatusOK)
}

func TestSecurityHeaders(t *testing.T) {
	h := New(held(t, "a"), Config{})
	for _, link := range []string{"", "name?n=a", "nothing", "api/names", "static/page.css", "healthz", "revoke"} {
		header := get(t, h, link).Header()
		wantText(t, header.Get("Content-Security-Policy"), "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'")
		wantNoText(t, header.Get("Content-Security-Policy"), "unsafe")
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", link, header)
		}
		want := "no-store"
		if strings.HasPrefix(link, "static") {
			want = "no-cache"
		}
		if have := header.Get("Cache-Control"); have != want {
			t.Errorf("%s: want Cache-Control %s, have %s", link, want, have)
		}
	}
	wantNoText(t, body(t, h, ""), " style=", "onclick", "javascript:")
}

func TestStaticFiles(t *testing.T) {
	h := New(memstore.New(), Config{})
	for name, kind := range map[string]string{"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"} {
		w := get(t, h, "static/"+name)
		if w.Code != http.StatusOK || w.Body.Len() < 100 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) {
			t.Errorf("%s: status %d, %d bytes, %v", name, w.Code, w.Body.Len(), w.Header())
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/static/"+name, nil)
		r.Header.Set("If-None-Match", w.Header().Get("ETag"))
		again := httptest.NewRecorder()
		h.ServeHTTP(again, r)
		wantStatus(t, again, http.StatusNotModified)
	}
}

// All links are relative, so the dashboard should work below any prefix, with and without the slash
// in StripPrefix's pattern.
func TestMountedBelowAPrefix(t *testing.T) {
	for _, prefix := range []string{"/ops/locks", "/ops/locks/"} {
		mux := http.NewServeMux()
		mux.Handle("/ops/locks/", http.StripPrefix(prefix, New(held(t, "a/b"), Config{Allow: anybody})))
		page := body(t, mux, "ops/locks/")
		wantNoText(t, page, `href="/`, `src="/`, `action="/`, `data-events="/`)
		wantText(t, body(t, mux, "ops/locks/"+linkIn(t, page, `name\?n=[^"]*`)), "This name is held")
		wantText(t, body(t, mux, "ops/locks/static/page.css"), ":root")
		if w := get(t, mux, "ops/locks"); w.Code/100 != 3 || w.Header().Get("Location") != "/ops/locks/" {
			t.Errorf("without the slash: status %d, location %q", w.Code, w.Header().Get("Location"))
		}
	}
}

func TestPagesOfALongList(t *testing.T) {
	s := memstore.New()
	for i := range 2*pageRows + 50 {
		acquire(t, s, "n:"+string(rune('a'+i/26/26))+string(rune('a'+i/26%26))+string(rune('a'+i%26)), tokenOf("web", 1, driver.KindMutex, 1, ""))
	}
	h := New(s, Config{})
	first := body(t, h, "?sort=name&glob=n:*")
	wantText(t, first, "1–200 of 450", `rel="next"`, "n:aaa")
	wantNoText(t, first, `rel="prev"`)
	if rows := strings.Count(first, "<tr data-row>"); rows != pageRows {
		t.Errorf("want %d rows, have %d", pageRows, rows)
	}
	second := body(t, h, linkIn(t, first, `[^"]*page=2[^"]*`))
	wantText(t, second, "201–400 of 450", `rel="prev"`, `rel="next"`)
	last := body(t, h, "?sort=name&glob=n:*&page=9")
	wantText(t, last, "401–450 of 450")
	wantNoText(t, last, `rel="next"`)
	var names struct {
		Matches, Pages, Page int
		Names                []view.State
	}
	if err := json.Unmarshal([]byte(body(t, h, "api/names?page=3")), &names); err != nil {
		t.Fatal(err)
	}
	if names.Matches != 450 || names.Pages != 3 || names.Page != 3 || len(names.Names) != 50 {
		t.Errorf("%d matches, page %d of %d, %d names", names.Matches, names.Page, names.Pages, len(names.Names))
	}
}

// Config.Glob hides names everywhere.
func TestGlobOfTheConfiguration(t *testing.T) {
	s := held(t, "shop:a")
	acquire(t, s, "pay:b", tokenOf("web", 1, driver.KindMutex, 1, ""))
	h := New(s, Config{Glob: "shop:*"})
	for _, link := range []string{"", "processes", "waits", "api/names", "api/processes"} {
		wantNoText(t, body(t, h, link), "pay:b")
	}
	wantText(t, body(t, h, ""), "shop:a")
	wantStatus(t, get(t, h, "name?n=pay:b"), http.StatusNotFound)
	wantStatus(t, get(t, h, "api/name?n=pay:b"), http.StatusNotFound)
	wantText(t, body(t, New(s, Config{Glob: "[a"}), ""), "does not answer", "pattern")
}

func TestAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(busyStore(t), Config{})
		var names namesAnswer
		var name nameAnswer
		var processes processesAnswer
		var waits waitsAnswer
		for link, into := range map[string]any{
			"api/names?glob=account:*&sort=name": &names, "api/name?n=api:partner": &name, "api/processes?process=web-7:211": &processes, "api/waits": &waits,
		} {
			w := get(t, h, link)
			if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: %v\n%s", link, err, w.Body)
			}
		}
		if names.Schema != view.Schema || names.Held != 4 || names.Waiting != 3 || names.Matches != 2 || names.Names[0].Name != "account:1" || names.Time.IsZero() {
			t.Errorf("names: %+v", names)
		}
		if name.Name != "api:partner" || len(name.Holders) != 1 || name.Holders[0].Weight != 3 || len(name.Waiters) != 1 {
			t.Errorf("name: %+v", name)
		}
		if p := processes.Processes; len(p) != 1 || p[0].Host != "web-7" || p[0].PID != 211 || len(p[0].Holds) != 1 || p[0].Holds[0].TTL == nil || p[0].Waits[0].Name != "account:2" || p[0].Waits[0].Position != 1 {
			t.Errorf("processes: %+v", processes)
		}
		if len(waits.Cycles) != 1 || !waits.Cycles[0].Sure || len(waits.Waits) != 3 {
			t.Errorf("waits: %+v", waits)
		}
	})
}

// While the store is away, the pages show its last states and say so.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &changedStore{Full: driver.Complete(held(t, "a"))}
		s.away.Store(true)
		h := New(s, Config{})
		wantText(t, body(t, h, ""), "The store does not answer", "connection refused", "The store has not answered yet.")
		wantStatus(t, get(t, h, "api/names"), http.StatusServiceUnavailable, "connection refused")
		wantStatus(t, get(t, h, "api/name?n=a"), http.StatusServiceUnavailable)
		wantText(t, body(t, h, "name?n=a"), "The store does not answer")
		wantText(t, body(t, h, "healthz"), "ok")

		s.away.Store(false)
		time.Sleep(2 * time.Second)
		page := body(t, h, "")
		wantText(t, page, "web-7:211")
		wantNoText(t, page, "does not answer")

		s.away.Store(true)
		time.Sleep(2 * time.Second)
		wantText(t, body(t, h, ""), "web-7:211", "These are the states of its last answer.")
		wantText(t, body(t, h, "name?n=a"), "The store does not answer", "web-7:211")
		wantStatus(t, get(t, h, "api/names"), http.StatusServiceUnavailable, `"names":[{`)
	})
}

// A slowStore needs some time to list its names.
type slowStore struct {
	*driver.Full
	takes time.Duration
}

func (s slowStore) List(ctx context.Context, pattern string) ([]string, error) {
	time.Sleep(s.takes)
	return s.Full.List(ctx, pattern)
}

// A page does not wait for a long scan. Its events do.
func TestPageOfASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(slowStore{driver.Complete(held(t, "a")), 20 * time.Second}, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		s, wait := open(ctx, h, "events?view=list")
		began := time.Now()
		wantText(t, body(t, h, ""), "The store does not answer", "The store has not answered yet.")
		if took := time.Since(began); took != firstPoll {
			t.Errorf("the page took %v, want %v", took, firstPoll)
		}
		time.Sleep(20 * time.Second)
		wantText(t, s.text(), "web-7:211")
		cancel()
		wait()
		time.Sleep(time.Minute) // until List returns
	})
}

func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		lease := func(name string, ttl time.Duration, waiters int) {
			for i := range 1 + waiters {
				request := driver.AcquireRequest{Name: name, Token: tokenOf("web", 1+i, driver.KindMutex, 1, ""), Client: "c", TTL: ttl, Weight: 1, Limit: 1, Queue: true}
				if _, err := s.Acquire(t.Context(), request); err != nil {
					t.Fatal(err)
				}
			}
		}
		lease("b", 30*time.Second, 0)
		lease("c", 20*time.Second, 1)
		time.Sleep(time.Second)
		lease("a", time.Minute, 2)
		h := New(s, Config{})
		for sort, want := range map[string]string{"worst": "c a b", "name": "a b c", "ttl": "c b a", "waiting": "a c b", "held": "b c a"} {
			var names []string
			for _, row := range regexp.MustCompile(`<td class="name"><a href="name\?n=(.)"`).FindAllStringSubmatch(body(t, h, "?sort="+sort), -1) {
				names = append(names, row[1])
			}
			if have := strings.Join(names, " "); have != want {
				t.Errorf("%s: want %s, have %s", sort, want, have)
			}
		}
	})
}

func TestQuorumNodes(t *testing.T) {
	s := &changedStore{Full: driver.Complete(held(t, "a")), change: func(s *driver.State) {
		s.Nodes = []driver.NodeState{{State: *s}, {State: driver.State{Name: "a"}}, {Err: errors.New("dial tcp: <refused>")}}
	}}
	h := New(s, Config{})
	wantText(t, body(t, h, "name?n=a"), "Nodes of the quorum", "dial tcp: &lt;refused&gt;")
	var answer nameAnswer
	if err := json.Unmarshal([]byte(body(t, h, "api/name?n=a")), &answer); err != nil {
		t.Fatal(err)
	}
	if n := answer.Nodes; len(n) != 3 || n[0].State != view.Held || n[1].State != view.Free || n[2].Error == "" || n[2].Node != 2 {
		t.Errorf("nodes: %+v", n)
	}
}

// If a name's key holds data, its page says so, also live: the list does not contain it.
func TestWrongType(t *testing.T) {
	s := wrongTypeStore{driver.Complete(memstore.New())}
	h := New(s, Config{})
	for _, link := range []string{"name?n=data", "fragment?view=name&n=data"} {
		wantText(t, body(t, h, link), "wrong type", "cannot be locked: its key holds no lock: counter", "rename it")
	}
}

type wrongTypeStore struct{ *driver.Full }

func (s wrongTypeStore) Inspect(_ context.Context, name string) (driver.State, error) {
	f := &driver.Foreign{Key: name, Type: "string", Kind: "counter", Remaining: -1, Advice: "rename it"}
	return driver.State{}, &driver.WrongTypeError{Op: "inspect", Name: name, State: driver.State{Name: name, Foreign: f}}
}

func TestConcurrentRequests(t *testing.T) {
	h := New(busyStore(t), Config{Every: 100 * time.Millisecond, Allow: anybody})
	done := make(chan struct{})
	links := []string{"", "name?n=account:1", "processes", "waits", "api/names", "fragment?view=list", "doctor"}
	for _, link := range links {
		for range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for range 5 {
					if w := get(t, h, link); w.Code != http.StatusOK {
						t.Errorf("%s: status %d", link, w.Code)
					}
				}
			}()
		}
	}
	for range 4 * len(links) {
		<-done
	}
}
