// Package links tests the links between the pages.
package links

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	marks   = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// Each link to a file leads to a file of the repository, and its anchor to a heading.
func TestLinks(t *testing.T) {
	pages := pages(t)
	if len(pages) < 50 {
		t.Fatalf("%d pages", len(pages))
	}
	for _, page := range pages {
		for _, to := range linksOf(read(t, page)) {
			if why := broken(t, page, to); why != "" {
				t.Errorf("%s: link to %s: %s", page, to, why)
			}
		}
	}
}

// A reader finds each page by a link on another page.
func TestEachPageIsLinked(t *testing.T) {
	linked := map[string]bool{"README.md": true, ".vale/planted.md": true} // the first page; input of a test
	for _, page := range pages(t) {
		for _, to := range linksOf(read(t, page)) {
			file, _, _ := strings.Cut(to, "#")
			if path := filepath.Join(filepath.Dir(page), file); file != "" && path != page {
				linked[path] = true
			}
		}
	}
	for _, page := range pages(t) {
		if !linked[page] {
			t.Errorf("no page has a link to %s", page)
		}
	}
}

// The test finds planted broken links.
func TestBrokenLinksAreFound(t *testing.T) {
	for _, to := range linksOf("[a](no-such-file.md) [b](README.md#no-such-heading) `[c](code.md)`") {
		if broken(t, "README.md", to) == "" {
			t.Errorf("%s counts as good", to)
		}
	}
	if why := broken(t, "docs/guide.md", "../README.md"); why != "" {
		t.Error(why)
	}
}

func linksOf(text string) (all []string) {
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
			all = append(all, m[1])
		}
	}
	return all
}

// broken returns why a link on a page leads nowhere, or "".
func broken(t *testing.T, page, to string) string {
	file, fragment, _ := strings.Cut(to, "#")
	path := page
	if file != "" {
		path = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		return "no such file"
	}
	if fragment == "" || filepath.Ext(path) != ".md" || anchorsOf(read(t, path))[fragment] {
		return ""
	}
	return "no such heading"
}

// anchorsOf returns the anchors of a page, as GitHub makes them from its headings.
func anchorsOf(text string) map[string]bool {
	all := make(map[string]bool)
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		title := link.ReplaceAllString(strings.TrimSpace(m[1]), "]")
		all[strings.ReplaceAll(strings.ToLower(marks.ReplaceAllString(title, "")), " ", "-")] = true
	}
	return all
}

func pages(t *testing.T) []string {
	t.Helper()
	list := exec.Command("git", "ls-files", "*.md")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
