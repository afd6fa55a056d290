//go:build linux && !noserve

package main

import (
	"bufio"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func newJar(t *testing.T) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return jar
}

var servedAt = regexp.MustCompile(`are on (http://\S+/)`)

// startServe runs dibs serve until the test ends, and returns the URL of the pages.
func startServe(t *testing.T, store string, args ...string) (*program, string) {
	t.Helper()
	p := begin(t, store, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	var at []string
	eventually(t, "dibs serve listens", func() bool {
		at = servedAt.FindStringSubmatch(p.stderr.String())
		return at != nil
	})
	return p, at[1]
}

// get returns the status and the body of an answer to a request with this Host.
func get(t *testing.T, host, address string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		request.Host = host
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestServe(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()
	for _, name := range []string{"order:42", "cart:1"} {
		if _, err := locks.Mutex(name).TryLock(t.Context(), dibs.Label("web")); err != nil {
			t.Fatal(err)
		}
	}
	p, address := startServe(t, server.URL(), "order:*")
	status, body := get(t, "", address)
	if status != http.StatusOK || !strings.Contains(body, "order:42") || strings.Contains(body, "cart:1") || !strings.Contains(body, "(web)") {
		t.Errorf("status %d:\n%s", status, body)
	}
	if _, body := get(t, "", address+"api/findings"); !strings.Contains(body, `"subject"`) {
		t.Errorf("doctor finds nothing: %s", body)
	}

	// A page of another site may have a host name that resolves to this host.
	port := address[strings.LastIndex(address, ":")+1 : len(address)-1]
	for host, want := range map[string]int{
		"evil.example:" + port: http.StatusMisdirectedRequest, "evil.example": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example": http.StatusMisdirectedRequest, "10.0.0.1:" + port: http.StatusMisdirectedRequest,
		"localhost:" + port: http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:" + port: http.StatusOK, "[::1]": http.StatusOK,
	} {
		if status, body := get(t, host, address); status != want || want != http.StatusOK && strings.Contains(body, "order") {
			t.Errorf("host %s: status %d, want %d:\n%s", host, status, want, body)
		}
	}

	// A stream that is open does not delay the end.
	answer, err := http.Get(address + "events?view=list")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil {
		t.Fatalf("no event: %v", err)
	}
	began := time.Now()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.wantCode(143)
	if took := time.Since(began); took > 2*time.Second { // the limit of an orderly end is 3s
		t.Errorf("it has ended after %v", took)
	}
}

// With --revoke the pages can revoke, and each revocation is printed.
func TestServeRevokes(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()
	lease, err := locks.Mutex("order:42").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, address := startServe(t, server.URL(), "--revoke")
	page := address + "name?n=" + url.QueryEscape("order:42")
	_, body := get(t, "", page)
	form := regexp.MustCompile(`class="action" href="([^"]+)"`).FindStringSubmatch(body)
	if form == nil {
		t.Fatalf("no link to revoke:\n%s", body)
	}
	browser := &http.Client{Jar: newJar(t)}
	answer, err := browser.Get(address + strings.ReplaceAll(form[1], "&amp;", "&"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	action := regexp.MustCompile(`<form method="post" action="([^"]+)"`).FindSubmatch(text)
	secret := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindSubmatch(text)
	if action == nil || secret == nil {
		t.Fatalf("no form:\n%s", text)
	}
	answer, err = browser.PostForm(address+strings.ReplaceAll(string(action[1]), "&amp;", "&"), url.Values{
		"csrf": {string(secret[1])}, "typed": {"order:42"}, "reason": {"host is gone"},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	<-lease.Context().Done()
	eventually(t, "the revocation is printed", func() bool { return strings.Contains(p.stderr.String(), "host is gone") })
}
