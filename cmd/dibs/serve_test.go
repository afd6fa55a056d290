//go:build linux

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/servicetest"
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

var servedAt = regexp.MustCompile(`are on (http://\S+)`)

// startServe runs dibs serve until the test ends, and returns the pages' URL.
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

// withKey divides the URL printed by serve --revoke into the pages' URL, and the key.
func withKey(t *testing.T, printed string) (address, key string) {
	t.Helper()
	address, key, found := strings.Cut(printed, "?key=")
	if !found || len(key) < 20 {
		t.Fatalf("no key in %s", printed)
	}
	return address, key
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

	// Another site's page may have a host name that resolves to this host.
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

	// An open stream must not delay the end.
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
	if took := time.Since(began); took > 2*time.Second { // an orderly end's limit is 3s
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
	p, printed := startServe(t, server.URL(), "--revoke")
	address, key := withKey(t, printed)
	page := address + "name?n=" + url.QueryEscape("order:42")
	if status, body := get(t, "", page); status != http.StatusOK || !strings.Contains(body, "read-only") || strings.Contains(body, `class="action"`) {
		t.Errorf("without the key: status %d, want a page that is read-only:\n%s", status, body)
	}
	if status, _ := get(t, "", page+"&key=wrong"); status != http.StatusForbidden {
		t.Errorf("with a wrong key: status %d", status)
	}
	browser := &http.Client{Jar: newJar(t)}
	opened, err := browser.Get(page + "&key=" + key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(opened.Body)
	opened.Body.Close()
	if err != nil || opened.Request.URL.String() != page {
		t.Fatalf("with the key: %s, want %s, %v", opened.Request.URL, page, err)
	}
	body := string(text)
	form := regexp.MustCompile(`class="action" href="([^"]+)"`).FindStringSubmatch(body)
	if form == nil {
		t.Fatalf("no link to revoke:\n%s", body)
	}
	answer, err := browser.Get(address + strings.ReplaceAll(form[1], "&amp;", "&"))
	if err != nil {
		t.Fatal(err)
	}
	text, err = io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	action := regexp.MustCompile(`<form method="post" action="([^"]+)"`).FindSubmatch(text)
	secret := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindSubmatch(text)
	if action == nil || secret == nil {
		t.Fatalf("no form:\n%s", text)
	}
	post := func(jar http.CookieJar) int {
		answer, err := (&http.Client{Jar: jar}).PostForm(address+strings.ReplaceAll(string(action[1]), "&amp;", "&"), url.Values{
			"csrf": {string(secret[1])}, "typed": {"order:42"}, "reason": {"host is gone"},
		})
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	withoutKey := newJar(t)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range browser.Jar.Cookies(at) {
		if !strings.HasPrefix(c.Name, "dibs-key") {
			withoutKey.SetCookies(at, []*http.Cookie{c})
		}
	}
	if status := post(withoutKey); status != http.StatusForbidden || lease.Context().Err() != nil {
		t.Fatalf("a request without the key: status %d, %v", status, lease.Context().Err())
	}
	post(browser.Jar)
	<-lease.Context().Done()
	eventually(t, "the revocation is printed", func() bool { return strings.Contains(p.stderr.String(), "host is gone") })
	if log := p.stderr.String(); !strings.Contains(log, ", by "+userName()+" from 127.0.0.1:") {
		t.Errorf("the log does not say who has revoked:\n%s", log)
	}
}

// A proxy in front sends the browser's Host.
func TestServeBehindAProxy(t *testing.T) {
	server := redistest.Start(t)
	_, address := startServe(t, server.URL(), "--allow-host", "locks.example.com", "--allow-host", "10.0.0.1")
	for host, want := range map[string]int{
		"locks.example.com": http.StatusOK, "Locks.Example.com:8443": http.StatusOK, "10.0.0.1:80": http.StatusOK, "localhost": http.StatusOK,
		"example.com": http.StatusMisdirectedRequest, "locks.example.com.evil.example": http.StatusMisdirectedRequest,
	} {
		if status, _ := get(t, host, address); status != want {
			t.Errorf("host %s: status %d, want %d", host, status, want)
		}
	}
	for _, host := range []string{"", "https://locks.example.com", "locks.example.com:8443", "*.example.com"} {
		if err := checkHosts([]string{host}); err == nil {
			t.Errorf("--allow-host %q is accepted", host)
		}
	}
}

// The redirect to the page without the key stays in the page's directory.
func TestRedirectWithoutTheKey(t *testing.T) {
	for link, want := range map[string]string{"/": "./", "/name?n=a%2Fb": "./name?n=a%2Fb", "//evil.example": "./evil.example", "/x/%2F%2Fevil": "./%2F%2Fevil"} {
		u, err := url.ParseRequestURI(link)
		if err != nil {
			t.Fatal(err)
		}
		if have := withoutPath(u, u.Query()); have != want {
			t.Errorf("%s: have %s, want %s", link, have, want)
		}
	}
}

// A client that sends half a request, or does not read its answer, should lose its connection.
func TestServeDropsSlowClients(t *testing.T) {
	for what, c := range map[string]struct {
		request string
		limit   time.Duration
	}{
		"half a header":    {"GET / HTTP/1.1\r\nHost:", headerTime},
		"half a body":      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf", readTime},
		"does not read":    {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", writeTime},
		"no other request": {"", headerTime},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := servicetest.NewPipes()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err == nil {
						w.Write(make([]byte, 1<<20))
					}
				})
				go func() { ended <- serveUntil(ctx, listener, handler) }()
				client, conn := net.Pipe()
				watched := &closing{Conn: conn, closed: make(chan struct{})}
				listener.Give(watched)
				began := time.Now()
				if _, err := io.WriteString(client, c.request); err != nil {
					t.Fatal(err)
				}
				if c.limit != writeTime {
					go io.Copy(io.Discard, client)
				}
				<-watched.closed
				if took := time.Since(began); took < c.limit || took > c.limit+time.Second {
					t.Errorf("closed after %v, want %v", took, c.limit)
				}
				client.Close()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A closing is a connection that reports when it is closed.
type closing struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Metrics are read by a program, from the same hosts as the pages. The store is polled also if nobody
// asks.
func TestServeMetrics(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb))
	defer locks.Close()
	if _, err := locks.Mutex("order:42").TryLock(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, address := startServe(t, server.URL(), "--every", "1s")
	eventually(t, "a poll lists the names before anybody asks", func() bool {
		stats, err := rdb.Info(t.Context(), "commandstats").Result()
		return err == nil && strings.Contains(stats, "cmdstat_scan:")
	})
	if status, _ := get(t, "evil.example", address+"metrics"); status != http.StatusMisdirectedRequest {
		t.Errorf("another host: status %d", status)
	}
	eventually(t, "metrics have the lease", func() bool { // a poll may fail on a slow machine
		status, body := get(t, "", address+"metrics")
		if status != http.StatusOK {
			t.Fatalf("status %d:\n%s", status, body)
		}
		return strings.Contains(body, "\ndibs_store_up 1\n") && strings.Contains(body, "\ndibs_holding{class=\"order:*\"} 1\n")
	})
}
