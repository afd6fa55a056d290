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

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// patience limits the wait for a change on the page, on a busy machine.
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

// A browser is started by the first test using it, and ended by TestMain.
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
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(chromium(t)),
		chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun, chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewContext(allocator)
	browser.stop = func() { stop(); stopAllocator() }
	if err := chromedp.Do(ctx); err != nil {
		browser.stop()
		browser.stop = nil
		t.Fatalf("chromium does not start: %v", err)
	}
	browser.ctx = ctx
	return ctx
}

// A page is a browser tab showing a dashboard. A test fails if a script on its page fails.
type page struct {
	*testing.T
	ctx      context.Context
	url      string
	failures failures
}

// failures are errors from the page's scripts.
type failures struct {
	mu    sync.Mutex
	found []*runtime.ExceptionDetails
}

func (f *failures) add(e *runtime.ExceptionDetails) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found, e)
}

func (f *failures) report(t *testing.T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.found {
		t.Errorf("a script has failed at %d: %s", e.LineNumber+1, e.Text)
	}
}

// A look is how a page is shown.
type look struct {
	width, height int64
	dark          bool
	noScript      bool
}

// open opens a tab with its own cookies, and navigates to a path on a server.
func open(t *testing.T, server *httptest.Server, path string, l look) *page {
	t.Helper()
	ctx, stop := chromedp.NewContext(startBrowser(t), chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	p := &page{T: t, ctx: ctx, url: server.URL}
	err := chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			p.failures.add(e.ExceptionDetails)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.failures.report(t) })
	if l.width == 0 {
		l.width, l.height = 1280, 900
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	p.do(chromedp.EmulateViewport(l.width, l.height))
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.noScript})
	p.visit(path)
	return p
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

// call sends a command to the tab.
func call[P, R any](p *page, command cdp.Command[P, R], params P) {
	p.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.Fatal(err)
	}
}

func (p *page) visit(path string) {
	p.Helper()
	p.do(chromedp.Navigate(p.url + path))
}

// eval returns an expression's value. It also works on a page without scripts.
func eval[T any](p *page, expression string) T {
	p.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%.100s: %v", expression, err)
	}
	return value
}

// eventually waits until an expression is true.
func (p *page) eventually(what, expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		switch {
		case err == nil && is:
			return
		case ctx.Err() != nil:
			text, _ := p.text()
			p.Fatalf("%s: not within %v: %v\n%s", what, patience, err, text)
		}
		select { // the page may be between two documents, without an event for it
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// text returns the page's visible text.
func (p *page) text() (text string, err error) {
	return chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.body ? document.body.innerText : ''"))
}

// live waits until the page is updated by itself.
func (p *page) live() {
	p.Helper()
	p.eventually("live", `document.getElementById("status")?.dataset.state === "live"`)
}

// click clicks the first element matching a selector, as soon as it exists. It does so in a single
// step: an update can replace an element between finding and clicking it.
func (p *page) click(selector string) {
	p.Helper()
	p.eventually("an element "+selector, fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (e) e.click(); return e })()`, selector))
}

// enter replaces an input's text by typing.
func (p *page) enter(selector, text string) {
	p.Helper()
	p.eventually("an input "+selector, fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (e) { e.focus(); e.select() } return e })()`, selector))
	p.press(text)
}

// press presses keys, in sequence.
func (p *page) press(keys ...string) {
	p.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

// names returns the names in the list.
func (p *page) names() []string {
	p.Helper()
	return eval[[]string](p, `[...document.querySelectorAll("table.list tr[data-row] td:first-child bdi")].map(e => e.textContent)`)
}

// A served is a store's dashboard.
type served struct {
	*httptest.Server
	store *counting
	locks *dibs.Client
}

// counting is a store that counts its reads.
type counting struct {
	*driver.Full
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
	return s.Full.List(ctx, glob)
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
	store := &counting{Full: driver.Complete(memstore.New())}
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
	t.Cleanup(server.CloseClientConnections) // ends the open pages' streams
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

// wait adds a waiter for a name, and returns when it is in the queue. It ends with the test, even
// if it holds the name at that time. Each waiter is a separate client, if no client is given.
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
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, dibs.ErrClosed) {
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
