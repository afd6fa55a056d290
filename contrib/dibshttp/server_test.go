package dibshttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

// eachProtocol runs a test with real connections for both HTTP versions.
func eachProtocol(t *testing.T, test func(t *testing.T, start func(http.Handler) *httptest.Server)) {
	for major, name := range map[int]string{1: "HTTP1", 2: "HTTP2"} {
		t.Run(name, func(t *testing.T) {
			servicetest.WantNoGoroutines(t)
			test(t, func(h http.Handler) *httptest.Server { return startServer(t, h, major) })
		})
	}
}

// startServer starts a server, whose log must stay empty.
func startServer(t *testing.T, h http.Handler, major int) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != major {
			t.Errorf("the protocol is %s, want HTTP/%d", r.Proto, major)
		}
		h.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(logged{t}, "", 0)
	if server.EnableHTTP2 = major == 2; server.EnableHTTP2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// logged fails the test for each line logged by the server.
type logged struct{ t *testing.T }

// ofNetHTTP is a panic in net/http itself, even without dibs. In full duplex the rest of a request
// can end with its connection, after the response. Then net/http reads twice at once.
const ofNetHTTP = "invalid concurrent Body.Read call"

func (l logged) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte(ofNetHTTP)) {
		l.t.Errorf("the server logs: %s", line)
	}
	return len(line), nil
}

func send(ctx context.Context, t *testing.T, server *httptest.Server, method, path string, body io.Reader) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, server.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return server.Client().Do(r)
}

// shortTTL is for tests that lose a lease. A client that just started may miss a revocation event,
// and notice the revocation at the next renewal only.
var shortTTL = dibs.TTL(time.Second)

// lose revokes a request's lease, and waits until the request's context ends.
func lose(t *testing.T, locks *dibs.Client, r *http.Request) {
	t.Helper()
	if done, err := locks.Revoke(context.Background(), r.URL.Path, dibs.Holder{Fence: carried.Fence(r.Context())}, "test"); !done || err != nil {
		t.Errorf("revoke: %v, %v", done, err)
		return
	}
	servicetest.Receive(t, "the context ends", r.Context().Done())
}

// A stream whose lease is lost does not end normally.
func TestStreamIsAborted(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		locks := newLocks(t, memstore.New(), shortTTL)
		goOn := make(chan struct{})
		server := start(dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "part")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			<-goOn
			lose(t, locks, r)
			if _, err := fmt.Fprintln(w, "late"); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("a write after the loss: %v", err)
			}
		})))
		response, err := send(t.Context(), t, server, http.MethodPost, "/n", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body := bufio.NewReader(response.Body)
		if line, err := body.ReadString('\n'); line != "part\n" || err != nil { // although the handler still runs
			t.Fatalf("have %q, %v", line, err)
		}
		close(goOn)
		if rest, err := io.ReadAll(body); err == nil || len(rest) > 0 {
			t.Errorf("the rest is %q, %v; want an error", rest, err)
		} else {
			t.Logf("the client has: %v", err)
		}
		servicetest.WantFree(t, locks, "/n")
	})
}

// A handler that ignores the loss should not succeed, even if it wrote its whole response before.
func TestLateHandler(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		locks := newLocks(t, memstore.New(), shortTTL)
		server := start(dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/before") {
				w.Header().Set("Content-Length", "4")
				fmt.Fprint(w, "done")
			}
			lose(t, locks, r)
			fmt.Fprint(w, "late")
		})))
		if response, err := send(t.Context(), t, server, http.MethodPost, "/before", http.NoBody); err == nil {
			t.Errorf("have status %d, want a broken connection", response.StatusCode)
		}
		response, err := send(t.Context(), t, server, http.MethodPost, "/after", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusInternalServerError || err != nil || strings.Contains(string(body), "late") {
			t.Errorf("have status %d, %q, %v, want 500", response.StatusCode, body, err)
		}
	})
}

// An informational header does not count as final.
func TestEarlyHints(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		locks := newLocks(t, memstore.New(), shortTTL)
		server := start(dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			lose(t, locks, r)
		})))
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(status int, _ textproto.MIMEHeader) error { hints = status; return nil },
		})
		response, err := send(ctx, t, server, http.MethodGet, "/n", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if hints != http.StatusEarlyHints || response.StatusCode != http.StatusInternalServerError {
			t.Errorf("have %d and %d, want 103 and 500", hints, response.StatusCode)
		}
	})
}

func TestHijack(t *testing.T) {
	servicetest.WantNoGoroutines(t)
	locks := newLocks(t, memstore.New(), shortTTL)
	locked := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffer, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close()
		fmt.Fprint(buffer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		buffer.Flush()
		lose(t, locks, r)
		fmt.Fprint(buffer, "bye")
		buffer.Flush()
	}))
	server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			}
		}()
		locked.ServeHTTP(w, r)
	}), 1)
	response, err := send(t.Context(), t, server, http.MethodGet, "/n", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusSwitchingProtocols || string(body) != "bye" || err != nil {
		t.Errorf("have status %d, %q, %v", response.StatusCode, body, err)
	}
	servicetest.WantFree(t, locks, "/n")
}

// The response writer should pass http.ResponseController's other methods on.
func TestResponseController(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		locks := newLocks(t, memstore.New())
		server := start(dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			controller, soon := http.NewResponseController(w), time.Now().Add(servicetest.Generous)
			if err := errors.Join(controller.SetReadDeadline(soon), controller.SetWriteDeadline(soon), controller.EnableFullDuplex()); err != nil {
				t.Error(err)
			}
			conn, _, err := controller.Hijack()
			if err == nil {
				conn.Close()
			}
			if r.ProtoMajor == 2 != errors.Is(err, http.ErrNotSupported) {
				t.Errorf("hijack on %s: %v; want ErrNotSupported on HTTP/2", r.Proto, err)
			}
		})))
		response, err := send(t.Context(), t, server, http.MethodGet, "/n", nil)
		if server.EnableHTTP2 != (err == nil) { // a hijacked connection has no response
			t.Errorf("have %v", err)
		}
		if err == nil {
			response.Body.Close()
		}
	})
}

// A client that disconnects leaves no queue entry. Over HTTP/1 this is noticed only if the
// request has no body; with a body, Wait ends the waiting.
func TestClientLeavesTheQueue(t *testing.T) {
	eachProtocol(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		for _, body := range []string{"", "body"} {
			store := memstore.New()
			holder, locks := newLocks(t, store), newLocks(t, store)
			lease, err := holder.Mutex("/n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wait := time.Hour
			if body != "" {
				wait = time.Second
			}
			server := start(dibshttp.Lock(byPath(locks), dibshttp.With(dibs.Wait(wait)))(never(t)))
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := send(ctx, t, server, http.MethodPost, "/n", strings.NewReader(body))
				failed <- err
			}()
			waiting := func() int {
				state, err := locks.Inspect(t.Context(), "/n")
				if err != nil {
					t.Fatal(err)
				}
				return state.Waiting
			}
			servicetest.Eventually(t, "the request waits", func() bool { return waiting() == 1 })
			cancel()
			if err := servicetest.Receive(t, "the client ends", failed); !errors.Is(err, context.Canceled) {
				t.Errorf("the client has %v", err)
			}
			servicetest.Eventually(t, "the queue is empty", func() bool { return waiting() == 0 })
			if err := lease.Unlock(); err != nil {
				t.Error(err)
			}
			servicetest.WantFree(t, locks, "/n")
		}
	})
}

// Two servers increment counters without any other protection.
func TestSum(t *testing.T) {
	const clients, requests, paths = 16, 15, 3
	eachProtocol(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		store := memstore.New()
		var counters [paths]int
		count := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			counter := &counters[r.URL.Path[1]-'0']
			before := *counter
			for range 10 {
				runtime.Gosched()
			}
			*counter = before + 1
		})
		servers := []*httptest.Server{
			start(dibshttp.Lock(byPath(newLocks(t, store)))(count)),
			start(dibshttp.Lock(byPath(newLocks(t, store)))(count)),
		}
		var group sync.WaitGroup
		for c := range clients {
			group.Go(func() {
				for i := range requests {
					path := fmt.Sprintf("/%d", (c+i)%paths)
					response, err := send(t.Context(), t, servers[c%len(servers)], http.MethodPost, path, http.NoBody)
					if err != nil {
						t.Error(err)
						return
					}
					response.Body.Close()
					if response.StatusCode != http.StatusOK {
						t.Errorf("%s: status %d", path, response.StatusCode)
					}
				}
			})
		}
		group.Wait()
		for path, have := range counters {
			if want := clients * requests / paths; have != want {
				t.Errorf("counter %d is %d, want %d", path, have, want)
			}
		}
	})
}
