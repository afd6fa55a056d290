package pagetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/checkup"
	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/driver"
)

// example fills a store as in a shop: with a nightly job and its waiters, permits, and two
// processes that wait for each other.
func (s *served) example(t *testing.T) {
	t.Helper()
	const first, second = "web-7:211", "web-9:88"
	take := func(lease *dibs.Lease, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lease.Unlock() })
	}
	mutex := func(name, process, label string) {
		take(s.locks.Mutex(name).TryLock(t.Context(), as(process, "m", label)))
	}
	mutex("account:1", first, "checkout")
	mutex("account:2", second, "checkout")
	s.wait(t, s.locks, "account:2", as(first, "m", "checkout"))
	s.wait(t, s.locks, "account:1", as(second, "m", "checkout"))
	mutex("billing:close", "jobs-1:4242", "cron")
	for _, process := range []string{"web-2:77", "web-3:1801", "report-1:12"} {
		s.wait(t, s.locks, "billing:close", as(process, "m", "report"))
	}
	for _, process := range []string{"worker-1:7", "worker-2:7", "worker-3:7"} {
		take(s.locks.Semaphore("api:partner", 4).Permits(1).TryLock(t.Context(), as(process, "s4", "sync")))
	}
	take(s.locks.RWMutex("config").Reader().TryLock(t.Context(), as(first, "r", "")))
	take(s.locks.RWMutex("config").Reader().TryLock(t.Context(), as(second, "r", "")))
	for _, name := range []string{"order:4711", "order:4712", "order:4720", "cart:9"} {
		mutex(name, first, "")
	}
}

// as returns the token for another process's lease, as dibs creates it.
func as(process, kind, label string) dibs.Option {
	client := fmt.Sprintf("%x", sha256.Sum256([]byte(process)))[:16]
	token := fmt.Sprintf("%s:%s:%s-%s", process, client, kind, strings.ToLower(rand.Text()))
	if label != "" {
		token += ":" + label
	}
	return dibs.OwnerToken(token)
}

// findings are an example server's findings.
func findings(context.Context) (checkup.Findings, error) {
	return checkup.Findings{{
		Severity: checkup.Warning, Subject: "persistence", What: "appendfsync is everysec",
		Consequence: "after a crash of the host, the locks of the last second may be forgotten",
		Remedy:      "set appendfsync always, or use a quorum",
	}}, nil
}

// TestScreenshots writes screenshots to the directory DIBS_SCREENSHOTS, for the documents.
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
		"dashboard":           {"/", look{width: 1280, height: 640}},
		"dashboard-dark":      {"/", look{width: 1280, height: 640, dark: true}},
		"dashboard-narrow":    {"/", look{width: 400, height: 900}},
		"dashboard-name":      {"/name?n=billing:close", look{width: 1280, height: 760}},
		"dashboard-waits":     {"/waits", look{width: 1280, height: 760}},
		"dashboard-processes": {"/processes", look{width: 1280, height: 760}},
		"dashboard-doctor":    {"/doctor", look{width: 1280, height: 400}},
		"dashboard-revoke":    {"", look{width: 1280, height: 760, dark: true}},
	} {
		p := open(t, s.Server, c.path, c.look)
		if c.path == "" {
			p.visit("/name?n=billing:close")
			p.click("a.action")
			p.eventually("the form", `document.querySelector("#revoke")`)
		}
		p.eventually("the page is ready", `["live", undefined].includes(document.getElementById("status")?.dataset.state)`)
		eval[any](p, "scrollTo(0, 0)")
		picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, name+".png"), picture, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// While the store does not answer, the page keeps the last states, with the reason.
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
