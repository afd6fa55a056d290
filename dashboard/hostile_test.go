package dashboard

import (
	"encoding/json"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

var hostileNames = []string{
	"<script>alert(1)</script>",
	`"><img src=x onerror=alert(1)>`,
	"'-alert(1)-'",
	"</title></textarea></script><svg onload=alert(1)>",
	"javascript:alert(1)",
	"//evil.example/x",
	"../../etc/passwd",
	"a/b?c=d&e#f%2e g+h;i=j",
	"?",
	"#",
	"%",
	" leading and trailing ",
	"{{.Name}} ${x} <!-- -->",
	"\u202egnp.exe\u2066",
	"קופה:42 שלום",
	"\x1b[2J\x1b]0;title\a",
	"a\nb\r\nc\x00d\u2028e",
	"event: update\ndata: x\n\n",
	strings.Repeat("<&\"'>/", 85) + "ab", // 512 bytes
	"e" + strings.Repeat("\u0301", 255),
}

// storeWith contains a name with a holder and a waiter, each with a hostile label, and two
// processes that wait for each other.
func storeWith(t testing.TB, name, label, host string) driver.Store {
	t.Helper()
	s := memstore.New()
	one, two := tokenOf(host, 211, driver.KindMutex, 1, label), tokenOf("web-9", 88, driver.KindMutex, 1, label)
	acquire(t, s, name, one)
	acquire(t, s, "other", two)
	acquire(t, s, name, two)
	acquire(t, s, "other", one)
	return s
}

// viewsOf are links that show a name everywhere it can occur.
func viewsOf(name string) []string {
	fragment := query{view: viewName, name: name}.live("fragment")
	return []string{"", nameLink(name), "processes", "waits", fragment, "fragment?view=list", "fragment?view=waits", "?glob=*"}
}

// A hostile name or label should change nothing but texts: the pages should contain the same
// elements as for a harmless name.
func TestHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const harmless = "order:42"
		plain := New(storeWith(t, harmless, "cron", "web-7"), Config{Allow: anybody})
		for _, name := range hostileNames {
			label, host := strings.ReplaceAll(name, "\x00", ""), strings.ReplaceAll(name, ":", "")
			for _, h := range []struct{ label, host string }{{label, "web-7"}, {"cron", host}} {
				hostile := New(storeWith(t, name, h.label, h.host), Config{Allow: anybody})
				for i, link := range viewsOf(name) {
					page := body(t, hostile, link)
					want, _ := structure(t, body(t, plain, viewsOf(harmless)[i]))
					have, text := structure(t, page)
					if !slices.Equal(want, have) {
						t.Errorf("%q in %s: want the elements\n%q, have\n%q", name, link, want, have)
					}
					if !strings.HasPrefix(link, "fragment?n=") { // the name is above the fragment
						wantText(t, text, view.Safe(name))
					}
					wantNoText(t, text, "\x1b", "\u202e", "\x00", "\u2066")
				}
			}
		}
	})
}

// Each link to a name should lead to this name.
func TestLinksToHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, name := range hostileNames {
			h := New(storeWith(t, name, "", "web-7"), Config{Allow: anybody})
			for _, from := range []string{"?glob=*", "processes", "waits"} {
				page := body(t, h, from)
				link := linkTo(t, page, name)
				var answer nameAnswer
				if err := json.Unmarshal([]byte(body(t, h, "api/"+link)), &answer); err != nil || answer.Name != name || answer.State.State != view.Held {
					t.Errorf("%s in %s: have %q, %s, %v", link, from, answer.Name, answer.State.State, err)
				}
			}
			wantStatus(t, formOf(t, h, name).send(t, h), 303)
		}
	})
}

var (
	anyLink = regexp.MustCompile(` (?:href|action|src|data-events|data-fragment)="([^"]*)"`)
	ownLink = regexp.MustCompile(`^(\./|name|processes|waits|doctor|log|events|fragment|revoke|static/[a-z.]+|#content)$`)
)

// Each link on each page leads to a page in the dashboard. The HTML library does not check links:
// a name at the start of a link could run a script, or lead to another site.
func TestLinksOfHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, name := range hostileNames {
			h := New(storeWith(t, name, "", strings.ReplaceAll(name, ":", "")), Config{Allow: anybody, Title: name})
			form := linkIn(t, body(t, h, nameLink(name)), `name\?[^"]*revoke=[^"]*`)
			for _, from := range append(viewsOf(name), form) {
				links := anyLink.FindAllStringSubmatch(body(t, h, from), -1)
				if len(links) == 0 {
					t.Errorf("no links in %s", from)
				}
				for _, link := range links {
					path, _, _ := strings.Cut(html.UnescapeString(link[1]), "?")
					if !ownLink.MatchString(path) {
						t.Errorf("%q in %s: link %q", name, from, link[1])
					}
				}
			}
		}
	})
}

// linkTo returns a page's link to a name.
func linkTo(t testing.TB, page, name string) string {
	t.Helper()
	want := nameLink(name)
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if html.UnescapeString(link[1]) == want {
			return want
		}
	}
	t.Errorf("no link %s in\n%s", want, page)
	return want
}

// A name with control characters can be typed as it is shown.
func TestTypedNameAsShown(t *testing.T) {
	const name = "a\nb\x1b"
	h := New(storeWith(t, name, "", "web-7"), Config{Allow: anybody})
	f := formOf(t, h, name)
	f.values.Set("typed", view.Safe(name))
	wantStatus(t, f.send(t, h), 303)
}

// A dashboard's title is also text.
func TestHostileTitle(t *testing.T) {
	page := body(t, New(memstore.New(), Config{Title: "</title><script>x\x1b"}), "")
	wantNoText(t, page, "<script>x", "\x1b")
}

func FuzzName(f *testing.F) {
	for _, name := range hostileNames {
		f.Add(name, "cron")
		f.Add("order:42", name)
	}
	const harmless = "order:42"
	links := []string{"fragment?view=list", "fragment?view=waits", "fragment?view=processes"}
	var want [][]element
	plain := New(storeWith(f, harmless, "cron", "web-7"), Config{Allow: anybody})
	for _, link := range append(links, nameLink(harmless)) {
		elements, _ := structure(f, body(f, plain, link))
		want = append(want, elements)
	}
	f.Fuzz(func(t *testing.T, name, label string) {
		token := tokenOf("web-7", 211, driver.KindMutex, 1, label)
		request := driver.AcquireRequest{Name: name, Token: token, Client: "c", Weight: 1, Limit: 1, TTL: 1e9}
		if driver.CheckAcquire(request) != nil || name == "other" || label == "" {
			t.Skip()
		}
		synctest.Test(t, func(t *testing.T) {
			h := New(storeWith(t, name, label, "web-7"), Config{Allow: anybody})
			for i, link := range append(links, nameLink(name)) {
				have, text := structure(t, body(t, h, link))
				if !slices.Equal(want[i], have) {
					t.Errorf("%q in %s: want the elements\n%q, have\n%q", name, link, want[i], have)
				}
				wantText(t, text, view.Safe(name))
			}
		})
	})
}
