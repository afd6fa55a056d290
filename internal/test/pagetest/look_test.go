package pagetest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard"
)

// hostile are names that somebody can choose to harm an operator.
var hostile = []string{
	`<script>window.harmed = true</script>`,
	`"><img src=x onerror="window.harmed = true">`,
	`' onmouseover='window.harmed = true`,
	`javascript:window.harmed = true`,
	`</table></main><h1>fake</h1>`,
	"\u202eerutuf eht fo eman\u202c",
	"\u05e9\u05dc\u05d5\u05dd:42",
	"line\nbreak\ttab\x00zero\x1b[31m",
	"a/b?c#d&e=f%20g h+i",
	strings.Repeat("m", 512),
	strings.Repeat("\u6f22", 170),
	"..", "/", "?", " ",
}

// views are a dashboard's pages.
func views(names ...string) []string {
	all := []string{"/", "/processes", "/waits", "/log", "/doctor"}
	for _, name := range names {
		all = append(all, "/name?n="+url.QueryEscape(name))
	}
	return all
}

// A name should be text on each page, and link to its own page.
func TestHostileNames(t *testing.T) {
	s := serve(t, dashboard.Config{Allow: always})
	for _, name := range hostile {
		s.hold(t, name, dibs.Label("<b>label</b>"))
		s.wait(t, nil, name, dibs.Label("<i>waiter</i>"))
	}
	p := open(t, s.Server, "/", look{width: 400, height: 800})
	for _, view := range views(hostile...) {
		p.visit(view)
		if view != "/doctor" {
			p.live()
		}
		if eval[bool](p, `Boolean(window.harmed === true || document.querySelectorAll("script").length !== 1 || document.querySelector("img, h1 + h1") ||
			[...document.querySelectorAll("b, i")].some(e => ["label", "waiter"].includes(e.textContent)))`) {
			t.Errorf("%q: a name has become markup", view)
		}
		wantNoSideScroll(p, view)
	}
	p.visit("/")
	links := eval[[]string](p, `[...document.querySelectorAll("tr[data-row] td:first-child a")].map(a => a.getAttribute("href"))`)
	var found []string
	for _, link := range links {
		u, err := url.Parse(link)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, u.Query().Get("n"))
	}
	want := slices.Sorted(slices.Values(hostile))
	if slices.Sort(found); !slices.Equal(found, want) {
		t.Errorf("the links lead to\n%q\nwant\n%q", found, want)
	}
	for i := range links {
		p.visit("/")
		eval[any](p, fmt.Sprintf(`document.querySelectorAll("tr[data-row] td:first-child a")[%d].click()`, i))
		p.eventually("the page of a name", `document.querySelector("h1.lock")`)
		if text, _ := p.text(); !strings.Contains(text, "held") {
			t.Errorf("link %d leads to\n%s", i, text)
		}
	}
}

// wantNoSideScroll checks that the page fits into the window's width.
func wantNoSideScroll(p *page, view string) {
	p.Helper()
	if over := eval[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		p.Errorf("%q is %d pixels too wide", view, over)
	}
}

// Without scripts each page should be complete, and the filter should work.
func TestWithoutScripts(t *testing.T) {
	s := serve(t, dashboard.Config{})
	s.hold(t, "cart:1")
	s.hold(t, "order:1")
	s.wait(t, nil, "order:1")
	p := open(t, s.Server, "/", look{noScript: true})
	p.enter("#glob", "order:*")
	p.click("form.filter button")
	p.eventually("the filter", `location.search.includes("glob=")`)
	if names := p.names(); !slices.Equal(names, []string{"order:1"}) {
		t.Errorf("names %q", names)
	}
	if eval[bool](p, `getComputedStyle(document.getElementById("pause")).display !== "none"`) {
		t.Error("there is a button that needs a script")
	}
	for view, want := range map[string]string{"/processes": "waits for 1", "/waits": "order:1", "/name?n=order:1": "Waiters"} {
		p.visit(view)
		if text, _ := p.text(); !strings.Contains(text, want) {
			t.Errorf("%s has no %q:\n%s", view, want, text)
		}
	}
	s.hold(t, "order:2")
	p.visit("/")
	p.eventually("what the refresh link shows", `document.querySelectorAll("tr[data-row]").length === 3`)
}

// The text colours should differ enough from their background, in light and dark mode.
func TestContrast(t *testing.T) {
	s := serve(t, dashboard.Config{Allow: always})
	s.example(t)
	for scheme, l := range map[string]look{"light": {}, "dark": {dark: true}} {
		p := open(t, s.Server, "/", l)
		if dark := eval[float64](p, contrastScript+`luminance(behind(document.body))`) < 0.2; dark != l.dark {
			t.Errorf("%s: the page is dark: %v", scheme, dark)
		}
		for _, view := range append(views("account:1", "billing:close"), "/name?n=account:1&revoke=1") {
			p.visit(view)
			for _, poor := range eval[[]string](p, contrastScript+`poorTexts()`) {
				t.Errorf("%s %s: %s", scheme, view, poor)
			}
		}
	}
}

// contrastScript computes contrasts as WCAG 2 does. Level AA wants 4.5.
const contrastScript = `
const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { rgb: m.slice(0, 3), alpha: m.length > 3 ? m[3] : 1 } };
const luminance = (rgb) => { const [r, g, b] = rgb.map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
const mix = (over, under) => over.rgb.map((v, i) => v * over.alpha + under[i] * (1 - over.alpha));
const behind = (e) => {
	if (!e) return matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
	const c = parse(getComputedStyle(e).backgroundColor);
	return c.alpha === 1 ? c.rgb : mix(c, behind(e.parentElement));
};
const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05) };
const poorTexts = () => {
	const poor = new Set();
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.textContent.trim() || e.closest("svg, script, noscript, option, .skip") || !e.offsetParent) continue;
		const style = getComputedStyle(e), back = behind(e);
		const ratio = contrast(mix(parse(style.color), back), back);
		if (ratio < 4.5) poor.add(e.tagName + "." + e.className + " " + JSON.stringify(walker.currentNode.textContent.trim().slice(0, 30)) + " has the contrast " + ratio.toFixed(2));
	}
	return [...poor];
};
`
