package pagetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/driver"
)

// example fills a store as that of a shop: a nightly job that others wait for, permits, and
// two processes that wait for each other.
func (s *served) example(t *testing.T) {
	t.Helper()
	shop := func(label string) (*dibs.Client, dibs.Option) {
		c := dibs.New(s.store)
		t.Cleanup(func() { c.Close() })
		return c, dibs.Label(label)
	}
	take := func(c *dibs.Client, name string, options ...dibs.Option) {
		if _, err := c.Mutex(name).TryLock(t.Context(), options...); err != nil {
			t.Fatal(err)
		}
	}
	one, label := shop("checkout")
	other, _ := shop("checkout")
	take(one, "account:1", label)
	take(other, "account:2", label)
	s.wait(t, one, "account:2", label)
	s.wait(t, other, "account:1", label)
	cron, label := shop("cron")
	take(cron, "billing:close", label)
	for range 3 {
		c, label := shop("report")
		s.wait(t, c, "billing:close", label)
	}
	for range 3 {
		c, label := shop("worker")
		if _, err := c.Semaphore("api:partner", 4).TryLock(t.Context(), label); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"order:4711", "order:4712", "order:4720", "cart:9"} {
		take(one, name)
	}
	reader, label := shop("web")
	if _, err := reader.RWMutex("config").TryRLock(t.Context(), label); err != nil {
		t.Fatal(err)
	}
}

// findings are those of an example of a server.
func findings(context.Context) (driver.Findings, error) {
	return driver.Findings{{
		Severity: driver.Warning, Subject: "persistence", What: "appendfsync is everysec",
		Consequence: "after a crash of the host, the locks of the last second may be forgotten",
		Remedy:      "set appendfsync always, or use a quorum",
	}}, nil
}

// TestScreenshots writes pictures of the pages to the directory DIBS_SCREENSHOTS, for the
// documents.
func TestScreenshots(t *testing.T) {
	directory := os.Getenv("DIBS_SCREENSHOTS")
	if directory == "" {
		t.Skip("DIBS_SCREENSHOTS names no directory")
	}
	s := serve(t, dashboard.Config{Title: "redis://shop-redis:6379", Allow: always, Doctor: findings})
	s.example(t)
	for name, c := range map[string]struct {
		path string
		look look
	}{
		"dashboard":           {"/", look{width: 1200, height: 640}},
		"dashboard-dark":      {"/", look{width: 1200, height: 640, dark: true}},
		"dashboard-narrow":    {"/", look{width: 400, height: 900}},
		"dashboard-name":      {"/name?n=billing:close", look{width: 1200, height: 760}},
		"dashboard-waits":     {"/waits", look{width: 1200, height: 760}},
		"dashboard-processes": {"/processes", look{width: 1200, height: 760}},
		"dashboard-doctor":    {"/doctor", look{width: 1200, height: 400}},
		"dashboard-revoke":    {"", look{width: 1200, height: 760, dark: true}},
	} {
		p := open(t, s.Server, c.path, c.look)
		if c.path == "" {
			p.visit("/name?n=billing:close")
			p.click("a.action")
			p.eventually("the form", `document.querySelector("#revoke")`)
		}
		p.eventually("the page is ready", `["live", undefined].includes(document.getElementById("status")?.dataset.state)`)
		var picture []byte
		p.run(chromedp.CaptureScreenshot(&picture))
		if err := os.WriteFile(filepath.Join(directory, name+".png"), picture, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// The store does not answer: the last states stay, with the reason.
func TestStoreIsAway(t *testing.T) {
	s := serve(t, dashboard.Config{})
	s.hold(t, "a")
	p := open(t, s.Server, "/", look{})
	p.live()
	s.store.fail(&driver.UnavailableError{Op: "list", Cause: errors.New("connection refused")})
	p.eventually("the reason", `document.body.innerText.includes("connection refused") && document.body.innerText.includes("a")`)
	s.store.fail(nil)
	p.eventually("the end of the outage", `!document.body.innerText.includes("connection refused")`)
}
