package pagetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// patience is for what the browser must show soon, on a busy machine.
const patience = time.Minute

// chromium returns the path of Chromium. Without it the test is skipped; with
// DIBS_REQUIRE_CHROMIUM=1 it fails.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("DIBS_REQUIRE_CHROMIUM") == "1" {
		t.Fatal("no chromium is installed")
	}
	t.Skip("SKIPPED: no chromium is installed; `make test` installs it")
	return ""
}

// A browser is started by the first test that needs it, and ended by TestMain.
var browser struct {
	sync.Mutex
	ctx  context.Context
	stop func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
}

func startBrowser(t *testing.T) context.Context {
	t.Helper()
	browser.Lock()
	defer browser.Unlock()
	if browser.ctx != nil {
		return browser.ctx
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-dev-shm-usage", true))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocator)
	browser.stop = func() { stop(); stopAllocator() }
	if err := chromedp.Run(ctx); err != nil {
		browser.stop()
		browser.stop = nil
		t.Fatalf("chromium does not start: %v", err)
	}
	browser.ctx = ctx
	return ctx
}

// A page is a tab of the browser that shows a dashboard. Each test fails if a script of its
// page fails.
type page struct {
	*testing.T
	ctx context.Context
	url string
}

// A look is how a page is shown.
type look struct {
	width, height int64
	dark          bool
	noScript      bool
}

// open opens a tab with cookies of its own, and navigates to a path of a server.
func open(t *testing.T, server *httptest.Server, path string, l look) *page {
	t.Helper()
	ctx, stop := chromedp.NewContext(startBrowser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	p := &page{t, ctx, server.URL}
	chromedp.ListenTarget(ctx, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			t.Errorf("a script has failed: %s", e.ExceptionDetails.Error())
		}
	})
	if l.width == 0 {
		l.width, l.height = 1280, 900
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	p.run(
		chromedp.EmulateViewport(l.width, l.height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		emulation.SetScriptExecutionDisabled(l.noScript),
	)
	p.visit(path)
	return p
}

func (p *page) run(actions ...chromedp.Action) {
	p.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

func (p *page) visit(path string) {
	p.Helper()
	p.run(chromedp.Navigate(p.url + path))
}

// eval returns the value of an expression. It also works if the page has no scripts.
func eval[T any](p *page, expression string) (value T) {
	p.Helper()
	p.run(chromedp.Evaluate(expression, &value))
	return value
}

// eventually waits until an expression is true.
func (p *page) eventually(what, expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		var is bool
		err := chromedp.Run(ctx, chromedp.Evaluate("Boolean("+expression+")", &is))
		switch {
		case err == nil && is:
			return
		case ctx.Err() != nil:
			text, _ := p.text()
			p.Fatalf("%s: not within %v: %v\n%s", what, patience, err, text)
		}
		select { // the page may be between two documents, and has no event for that
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// text returns what a person reads on the page.
func (p *page) text() (text string, err error) {
	err = chromedp.Run(p.ctx, chromedp.Evaluate("document.body ? document.body.innerText : ''", &text))
	return text, err
}

// live waits until the page is updated by itself.
func (p *page) live() {
	p.Helper()
	p.eventually("live", `document.getElementById("status")?.dataset.state === "live"`)
}

// click clicks the first element that matches a selector.
func (p *page) click(selector string) {
	p.Helper()
	p.run(chromedp.Click(selector, chromedp.ByQuery))
}

// names returns the names of the list.
func (p *page) names() []string {
	p.Helper()
	return eval[[]string](p, `[...document.querySelectorAll("table.list tr[data-row] td:first-child bdi")].map(e => e.textContent)`)
}

// A served is a dashboard of a store.
type served struct {
	*httptest.Server
	store *counting
	locks *dibs.Client
}

// counting is a store that counts how often it is read.
type counting struct {
	driver.Store
	mu    sync.Mutex
	lists int
	err   error
}

func (s *counting) List(ctx context.Context, glob string) ([]string, error) {
	s.mu.Lock()
	s.lists++
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.Store.List(ctx, glob)
}

func (s *counting) polls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// fail makes List fail, or succeed again if err is nil.
func (s *counting) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func serve(t *testing.T, c dashboard.Config) *served {
	t.Helper()
	store := &counting{Store: memstore.New()}
	locks := dibs.New(store)
	t.Cleanup(func() { locks.Close() })
	if c.Every == 0 {
		c.Every = 100 * time.Millisecond
	}
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	server := httptest.NewServer(dashboard.New(store, c))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // ends the streams of pages that are still open
	return &served{server, store, locks}
}

// hold holds a name until the test ends.
func (s *served) hold(t *testing.T, name string, options ...dibs.Option) *dibs.Lease {
	t.Helper()
	lease, err := s.locks.Mutex(name).TryLock(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// wait adds a waiter for a name, which waits until the test ends, and returns when it is in
// the queue. Each waiter is a client of its own, if no client is given.
func (s *served) wait(t *testing.T, client *dibs.Client, name string, options ...dibs.Option) {
	t.Helper()
	if client == nil {
		client = dibs.New(s.store)
		t.Cleanup(func() { client.Close() })
	}
	queued := make(chan struct{})
	options = append(options, dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(queued) }}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := client.Mutex(name).Lock(ctx, options...)
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, dibs.ErrClosed) {
			t.Errorf("the waiter for %q has ended with %v", name, err)
		}
	})
	select {
	case <-queued:
	case err := <-done:
		t.Fatalf("the waiter for %q has ended with %v", name, err)
	}
}

// always allows every request to revoke.
func always(*http.Request) bool { return true }

// numbered returns n names.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return names
}
