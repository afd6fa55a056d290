package pagetest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard"
)

// A page should show changes without a reload.
func TestLiveUpdate(t *testing.T) {
	s := serve(t, dashboard.Config{})
	s.hold(t, "order:1")
	p := open(t, s.Server, "/", look{})
	p.live()
	eval[bool](p, "window.loadedOnce = true")
	second := s.hold(t, "order:2", dibs.Label("nightly"))
	p.eventually("the new lock", `document.body.innerText.includes("order:2") && document.body.innerText.includes("(nightly)")`)
	s.wait(t, nil, "order:2")
	p.eventually("its waiter", `[...document.querySelectorAll("tr[data-row]")].some(r => r.innerText.includes("order:2") && r.querySelector(".some")?.textContent === "1")`)
	if err := second.Unlock(); err != nil {
		t.Fatal(err)
	}
	p.eventually("the waiter holds", `[...document.querySelectorAll("tr[data-row]")].some(r => r.innerText.includes("order:2") && !r.querySelector(".some"))`)
	if !eval[bool](p, "window.loadedOnce === true") {
		t.Error("the page was loaded again")
	}

	// A name's page shows the observed events.
	p.visit("/name?n=" + url.QueryEscape("order:2"))
	p.eventually("the hand-off", `document.querySelector("table.events").innerText.includes("handed off")`)
}

// The focus and the typed text should survive an update.
func TestUpdateKeepsFocus(t *testing.T) {
	s := serve(t, dashboard.Config{})
	for _, name := range []string{"a", "b", "c"} {
		s.hold(t, name)
	}
	p := open(t, s.Server, "/", look{})
	p.live()
	p.enter("#glob", "x*")
	p.press(kb.Escape, "j", "j")
	const focused = `document.activeElement.textContent`
	if name := eval[string](p, focused); name != "b" {
		t.Errorf("after j j, %q has the focus, want b", name)
	}
	eval[bool](p, `window.before = document.querySelector("tr[data-row]"), true`)
	s.hold(t, "d")
	p.eventually("an update", `!window.before.isConnected && document.body.innerText.includes("4 names") || document.querySelectorAll("tr[data-row]").length === 4`)
	if name, typed := eval[string](p, focused), eval[string](p, `document.getElementById("glob").value`); name != "b" || typed != "x*" {
		t.Errorf("after an update, %q has the focus, and %q is typed", name, typed)
	}
	p.press("k")
	if name := eval[string](p, focused); name != "a" {
		t.Errorf("after k, %q has the focus, want a", name)
	}
	p.press(kb.Enter)
	p.eventually("the page of a", `document.querySelector("h1.lock")?.innerText === "a"`)
}

func TestPause(t *testing.T) {
	s := serve(t, dashboard.Config{})
	s.hold(t, "a")
	p := open(t, s.Server, "/", look{})
	p.live()
	p.click("#pause")
	p.eventually("paused", `document.getElementById("status").dataset.state === "paused"`)
	s.hold(t, "b")
	after := s.store.polls()
	second := open(t, s.Server, "/", look{}) // its load shows that the store is polled
	second.eventually("the second page shows b", `document.body.innerText.includes("2 ")`)
	if names := p.names(); !slices.Equal(names, []string{"a"}) {
		t.Errorf("a paused page shows %q after %d polls", names, s.store.polls()-after)
	}
	p.click("#pause")
	p.eventually("live again", `document.querySelectorAll("tr[data-row]").length === 2`)
}

func TestFilter(t *testing.T) {
	s := serve(t, dashboard.Config{})
	for _, name := range []string{"cart:1", "order:1", "order:2", "[odd] *"} {
		s.hold(t, name)
	}
	p := open(t, s.Server, "/", look{})
	p.live()
	p.press("/")
	if id := eval[string](p, "document.activeElement.id"); id != "glob" {
		t.Errorf("after a slash, %q has the focus", id)
	}
	p.enter("#glob", "order:*")
	p.press(kb.Enter)
	p.eventually("the filter", `location.search.includes("glob=") && document.querySelectorAll("tr[data-row]").length === 2`)
	if names := p.names(); !slices.Equal(names, []string{"order:1", "order:2"}) {
		t.Errorf("names %q", names)
	}
	p.live()
	s.hold(t, "cart:2")
	s.hold(t, "order:3")
	p.eventually("a filtered update", `document.querySelectorAll("tr[data-row]").length === 3`)
	if names := p.names(); !slices.Equal(names, []string{"order:1", "order:2", "order:3"}) {
		t.Errorf("names after an update %q", names)
	}
	p.visit("/?glob=" + url.QueryEscape(`\[odd\] \*`))
	if names := p.names(); !slices.Equal(names, []string{"[odd] *"}) {
		t.Errorf("quoted characters find %q", names)
	}
	p.visit("/?glob=" + url.QueryEscape("["))
	if text, _ := p.text(); !strings.Contains(text, "pattern") {
		t.Errorf("no error for an invalid glob:\n%s", text)
	}
}

// A page finds its server again after an outage.
func TestServerIsBack(t *testing.T) {
	s := serve(t, dashboard.Config{})
	s.hold(t, "a")
	p := open(t, s.Server, "/", look{})
	p.live()
	s.CloseClientConnections()
	s.hold(t, "b")
	p.eventually("live again", `document.getElementById("status").dataset.state === "live" && document.querySelectorAll("tr[data-row]").length === 2`)
}

// Twenty tabs cost the store the same as a single tab.
func TestTwentyTabs(t *testing.T) {
	const every = 500 * time.Millisecond
	s := serve(t, dashboard.Config{Every: every})
	s.hold(t, "a")
	var tabs []*page
	for range 20 {
		tabs = append(tabs, open(t, s.Server, "/", look{}))
	}
	for _, p := range tabs {
		p.live()
	}
	began, before := time.Now(), s.store.polls()
	lease := s.hold(t, "b")
	for _, p := range tabs {
		p.eventually("b", `document.querySelectorAll("tr[data-row]").length === 2`)
	}
	lease.Unlock()
	for _, p := range tabs {
		p.eventually("no b", `document.querySelectorAll("tr[data-row]").length === 1`)
	}
	took, polls := time.Since(began), s.store.polls()-before
	if most := int(took/every) + 2; polls > most {
		t.Errorf("%d polls in %v with 20 tabs, want at most %d", polls, took, most)
	}
}

// Thousands of locks are shown at once.
func TestManyNames(t *testing.T) {
	s := serve(t, dashboard.Config{Every: time.Second})
	for _, name := range numbered("order:", 10_000) {
		s.hold(t, name)
	}
	waiter := dibs.New(s.store)
	defer waiter.Close()
	for i := range 1000 {
		s.wait(t, waiter, fmt.Sprintf("order:%05d", i%200))
	}
	p := open(t, s.Server, "/", look{})
	const paint = `performance.getEntriesByName("first-contentful-paint")[0]?.startTime`
	p.eventually("the first paint", paint)
	first := time.Duration(eval[float64](p, paint) * float64(time.Millisecond))
	t.Logf("10,000 held names and 1,000 waiters: first paint after %v", first)
	if first > 5*time.Second { // about 0.3 s on an idle machine
		t.Errorf("first paint after %v", first)
	}
	p.live()
	if text, _ := p.text(); !strings.Contains(text, "1000") && !strings.Contains(text, "1,000") || len(p.names()) != 200 {
		t.Errorf("%d names on the first page:\n%.300s", len(p.names()), text)
	}
	p.click("nav.pages a[rel=next]")
	p.eventually("the second page", `location.search.includes("page=2") && document.querySelectorAll("tr[data-row]").length === 200`)
}

// postFrom is a page on another site, which sends a form to the dashboard.
func postFrom(target string, fields map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<!doctype html><form method="post" action="%s">`, target)
		for name, value := range fields {
			fmt.Fprintf(w, `<input name="%s" value="%s">`, name, value)
		}
		fmt.Fprint(w, `<button>Win a prize</button></form>`)
	}
}
