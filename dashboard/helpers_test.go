package dashboard

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/dibslock/dibs/memstore"
)

// tokenOf returns a token as dibs makes it.
func tokenOf(host string, pid int, kind driver.Kind, limit int, label string) string {
	token := fmt.Appendf(nil, "%s:%d:%s:", host, pid, "clientclientclient")
	token = append(ownertoken.AppendKind(token, kind, limit), "secretsecretsecret"...)
	if label != "" {
		token = append(token, ":"+label...)
	}
	return string(token)
}

// acquire acquires a mutex, or waits for it.
func acquire(t testing.TB, s driver.Store, name, token string) driver.AcquireReply {
	t.Helper()
	return request(t, s, driver.AcquireRequest{Name: name, Token: token, Weight: 1, Limit: 1})
}

func request(t testing.TB, s driver.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	r.Client, r.TTL, r.Queue, r.Until = "client", time.Minute, true, time.Now().Add(time.Minute)
	reply, err := s.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// held returns a store in which web-7:211 holds a name.
func held(t testing.TB, name string) *memstore.Store {
	t.Helper()
	s := memstore.New()
	acquire(t, s, name, tokenOf("web-7", 211, driver.KindMutex, 1, "cron"))
	return s
}

// holding returns the tokens of a name's holders.
func holding(t testing.TB, s driver.Store, name string) (tokens []string) {
	t.Helper()
	state, err := driver.Complete(s).Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range state.Holders {
		tokens = append(tokens, h.Token)
	}
	return tokens
}

// get sends a GET request.
func get(t testing.TB, h http.Handler, link string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+strings.TrimPrefix(link, "./"), nil))
	return w
}

// body sends a GET request and returns the answer's body. The status must be 200.
func body(t testing.TB, h http.Handler, link string) string {
	t.Helper()
	w := get(t, h, link)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: status %d\n%s", link, w.Code, w.Body)
	}
	return w.Body.String()
}

func wantText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("want %q in\n%s", part, text)
		}
	}
}

func wantNoText(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("want no %q in\n%s", part, text)
		}
	}
}

func wantStatus(t testing.TB, w *httptest.ResponseRecorder, status int, parts ...string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("want status %d, have %d", status, w.Code)
	}
	wantText(t, w.Body.String(), parts...)
}

// linkIn returns the first link in a page that matches a pattern.
func linkIn(t testing.TB, page, pattern string) string {
	t.Helper()
	link := regexp.MustCompile(`href="(` + pattern + `)"`).FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("no link %s in\n%s", pattern, page)
	}
	return html.UnescapeString(link[1])
}

// An element is a tag with its attributes' names, as a parser finds it in a page.
type element string

// structure returns a page's elements and texts. It fails if an element is not closed.
func structure(t testing.TB, page string) (elements []element, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var all strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, all.String()
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, page)
		}
		switch token := token.(type) {
		case xml.StartElement:
			one := token.Name.Local
			for _, a := range token.Attr {
				one += " " + a.Name.Local
			}
			elements = append(elements, element(one))
		case xml.CharData:
			all.Write(token)
		}
	}
}

// A form is a page's form for a lease.
type form struct {
	action string
	cookie *http.Cookie
	values url.Values
	header http.Header
	method string
}

var (
	actionIn = regexp.MustCompile(`action="(revoke\?[^"]*)"`)
	csrfIn   = regexp.MustCompile(`name="csrf" value="([^"]*)"`)
)

// formOf opens the form for a name's first holder, as a browser does.
func formOf(t testing.TB, h http.Handler, name string) form {
	t.Helper()
	page := body(t, h, nameLink(name))
	w := get(t, h, linkIn(t, page, `name\?[^"]*revoke=[^"]*`))
	action, csrf := actionIn.FindStringSubmatch(w.Body.String()), csrfIn.FindStringSubmatch(w.Body.String())
	if action == nil || csrf == nil || len(w.Result().Cookies()) != 1 {
		t.Fatalf("no form, or no cookie: %v\n%s", w.Result().Cookies(), w.Body)
	}
	return form{
		action: html.UnescapeString(action[1]), cookie: w.Result().Cookies()[0], method: http.MethodPost,
		values: url.Values{"csrf": {csrf[1]}, "typed": {name}, "reason": {"host is gone"}}, header: http.Header{"Sec-Fetch-Site": {"same-origin"}},
	}
}

func (f form) send(t testing.TB, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), f.method, "/"+f.action, strings.NewReader(f.values.Encode()))
	r.Header = f.header.Clone()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if f.cookie != nil {
		r.AddCookie(f.cookie)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func anybody(*http.Request) bool { return true }

// A countingStore counts the calls that read it.
type countingStore struct {
	*driver.Full
	lists, inspectAlls, inspects atomic.Int64
}

func (s *countingStore) List(ctx context.Context, pattern string) ([]string, error) {
	s.lists.Add(1)
	return s.Full.List(ctx, pattern)
}

func (s *countingStore) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	s.inspectAlls.Add(1)
	return s.Full.InspectAll(ctx, names)
}

func (s *countingStore) Inspect(ctx context.Context, name string) (driver.State, error) {
	s.inspects.Add(1)
	return s.Full.Inspect(ctx, name)
}

// A changedStore changes a store's states, or fails.
type changedStore struct {
	*driver.Full
	change  func(*driver.State) // nil: nothing
	away    atomic.Bool
	revoked []driver.RevokeRequest
}

var errAway = &driver.UnavailableError{Op: "inspect", Cause: errors.New("connection refused")}

func (s *changedStore) List(ctx context.Context, pattern string) ([]string, error) {
	if s.away.Load() {
		return nil, errAway
	}
	return s.Full.List(ctx, pattern)
}

func (s *changedStore) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	if s.away.Load() {
		return nil, errAway
	}
	states, err := s.Full.InspectAll(ctx, names)
	for i := range states {
		if s.change != nil {
			s.change(&states[i])
		}
	}
	return states, err
}

func (s *changedStore) Inspect(ctx context.Context, name string) (driver.State, error) {
	if s.away.Load() {
		return driver.State{}, errAway
	}
	state, err := s.Full.Inspect(ctx, name)
	if s.change != nil {
		s.change(&state)
	}
	return state, err
}

func (s *changedStore) Revoke(ctx context.Context, r driver.RevokeRequest) (bool, error) {
	s.revoked = append(s.revoked, r)
	return s.Full.Revoke(ctx, r)
}
