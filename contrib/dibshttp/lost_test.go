package dibshttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

// A client's responses after a loss.
const (
	is500     = "500"
	isError   = "404 no such order" // from the handler
	isEarly   = "103 "
	cutError  = "404 no such order, cut"
	isWhole   = "200 whole"
	isCut     = "200 whole, cut"
	isNothing = "no response"
	isUpgrade = "101 "
)

// A lostState is a handler's state when its lease is lost, with the client's response.
type lostState struct {
	name string
	// work brings the handler into its state and calls ready, after which the lease is lost.
	work         func(w http.ResponseWriter, r *http.Request, ready func()) error
	http1, http2 string // empty: there is no such state, or it is not interrupted
	halfDuplex   bool   // HTTP/1 reads the request before it sends the header
	largeBody    bool   // the response's
}

var lostStates = []lostState{
	{name: "before the header", http1: is500, http2: is500, halfDuplex: true, work: untilContext(func(http.ResponseWriter) {})},
	{name: "before the header, blocked in a read", http1: is500, http2: is500, work: untilRead(func(http.ResponseWriter) {})},
	{name: "before the header, blocked in `Body.Close`", http1: is500, halfDuplex: true, work: untilBodyClosed},
	{name: "before the header, blocked in a 1xx", http1: isEarly, work: untilEarlyHints},
	{name: "header written, nothing sent", http1: isNothing, http2: isNothing, halfDuplex: true, work: untilContext(func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusCreated)
	})},
	{name: "blocked in the sending of the header", http1: isNothing, halfDuplex: true, work: untilFlushed(func(http.ResponseWriter) {})},
	{name: "in the body", http1: isCut, http2: isCut, work: untilContext(sendWhole)},
	{name: "in the body, blocked in a read", http1: isCut, http2: isCut, work: untilRead(sendWhole)},
	{name: "in the body, blocked in a write", http1: isCut, http2: isCut, largeBody: true, work: untilWrite(sendWhole)},
	{name: "error sent", http1: isError, http2: isError, work: untilContext(sendError)},
	{name: "error sent, blocked in a read", http1: cutError, http2: isError, work: untilRead(sendError)},
	{name: "error sent, blocked in a write", http1: cutError, http2: cutError, largeBody: true, work: untilWrite(sendError)},
	{name: "error written, blocked in the sending of the header", http1: isNothing, halfDuplex: true, work: untilFlushed(func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusNotFound)
	})},
	{name: "after the last byte of `Content-Length`", http1: isWhole, http2: isCut, work: untilContext(func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "5")
		sendWhole(w)
	})},
	{name: "hijacked connection", http1: isUpgrade, work: untilClosed},
}

func sendWhole(w http.ResponseWriter) {
	fmt.Fprint(w, "whole")
	w.(http.Flusher).Flush()
}

func sendError(w http.ResponseWriter) {
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprint(w, "no such order")
	w.(http.Flusher).Flush()
}

// untilContext is a handler that responds, and then waits for its context's end.
func untilContext(respond func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, func()) error {
	return func(w http.ResponseWriter, r *http.Request, ready func()) error {
		respond(w)
		ready()
		<-r.Context().Done()
		return context.Cause(r.Context())
	}
}

// untilRead is a handler that responds, and then reads more than the client sends.
func untilRead(respond func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, func()) error {
	return func(w http.ResponseWriter, r *http.Request, ready func()) error {
		if _, err := io.ReadFull(r.Body, make([]byte, len("part"))); err != nil {
			return err
		}
		respond(w)
		whenCalled(w, ready)
		_, err := r.Body.Read(make([]byte, 1))
		return err
	}
}

// untilFlushed is a handler whose header is blocked, because net/http reads the request first.
func untilFlushed(respond func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, func()) error {
	return func(w http.ResponseWriter, _ *http.Request, ready func()) error {
		respond(w)
		whenCalled(w, ready)
		return http.NewResponseController(w).Flush()
	}
}

// untilBodyClosed is a handler that blocks because net/http reads the rest of the request.
func untilBodyClosed(w http.ResponseWriter, r *http.Request, ready func()) error {
	whenCalled(w, ready)
	return r.Body.Close()
}

// untilEarlyHints is a handler that sends more than the client reads, and no final header.
func untilEarlyHints(w http.ResponseWriter, r *http.Request, ready func()) error {
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Set("Link", strings.Repeat("x", 64<<20)) // more than the kernel buffers
	whenCalled(w, ready)
	w.WriteHeader(http.StatusEarlyHints)
	return context.Cause(r.Context())
}

// A signaling is a writer and a body for a middleware around the lock.
type signaling struct {
	http.ResponseWriter
	io.ReadCloser
	ready func()     // called when a call begins, or nil
	call  sync.Mutex // locked during a call
}

// whenCalled makes the handler's next blocking call call ready.
func whenCalled(w http.ResponseWriter, ready func()) {
	w.(interface{ Unwrap() http.ResponseWriter }).Unwrap().(*signaling).ready = ready
}

func (s *signaling) begin() (end func()) {
	s.call.Lock()
	if s.ready != nil {
		s.ready()
		s.ready = nil
	}
	return s.call.Unlock
}

func (s *signaling) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *signaling) Read(p []byte) (int, error) {
	defer s.begin()()
	return s.ReadCloser.Read(p)
}

func (s *signaling) Close() error {
	defer s.begin()()
	return s.ReadCloser.Close()
}

func (s *signaling) WriteHeader(status int) {
	defer s.begin()()
	s.ResponseWriter.WriteHeader(status)
}

func (s *signaling) Write(p []byte) (int, error) {
	defer s.begin()()
	return s.ResponseWriter.Write(p)
}

func (s *signaling) FlushError() error {
	defer s.begin()()
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// SetReadDeadline returns when the interrupted call is over. So the bytes sent by this call do not
// depend on the time between two deadlines.
func (s *signaling) SetReadDeadline(at time.Time) error {
	err := http.NewResponseController(s.ResponseWriter).SetReadDeadline(at)
	s.call.Lock()
	defer s.call.Unlock()
	return err
}

// untilWrite is a handler that responds, and then writes more than the client reads.
func untilWrite(respond func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request, func()) error {
	return func(w http.ResponseWriter, _ *http.Request, ready func()) error {
		respond(w)
		whenCalled(w, ready)
		return writeUntilError(w)
	}
}

func writeUntilError(w io.Writer) error {
	for {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
}

// untilClosed is a handler with its own protocol.
func untilClosed(w http.ResponseWriter, r *http.Request, ready func()) error {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprint(buffer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	ready()
	<-r.Context().Done()
	fmt.Fprint(buffer, "bye")
	return errors.Join(context.Cause(r.Context()), buffer.Flush())
}

// received describes a response.
func received(response *http.Response, err error, largeBody bool) string {
	if err != nil {
		return isNothing
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	text := string(body)
	if largeBody {
		text = strings.TrimRight(text, "\x00")
	}
	if response.StatusCode == http.StatusInternalServerError && strings.Contains(text, "outcome unknown") && err == nil {
		return is500
	}
	text = fmt.Sprint(response.StatusCode, " ", text)
	if err != nil {
		text += ", cut"
	}
	return text
}

// In each state the client receives the stated response, and the handler returns whatever its client
// does.
func TestLostInEachState(t *testing.T) {
	for _, state := range lostStates {
		for major, want := range map[int]string{1: state.http1, 2: state.http2} {
			if want != "" {
				t.Run(fmt.Sprintf("%s/HTTP%d", state.name, major), func(t *testing.T) { t.Parallel(); testLost(t, state, major, want) })
			}
		}
	}
}

// sendPart sends a request's beginning, and returns the response. http.Client does not return an
// HTTP/1 error before it sent the request.
func sendPart(t *testing.T, server *httptest.Server) (*http.Response, error) {
	if server.EnableHTTP2 {
		body, more := io.Pipe()
		t.Cleanup(func() { more.Close() })
		go more.Write([]byte("part"))
		return send(t.Context(), t, server, http.MethodPost, "/n", body)
	}
	return http.ReadResponse(bufio.NewReader(dialPart(t, server)), nil)
}

// dialPart sends a request's beginning over an HTTP/1 connection.
func dialPart(t *testing.T, server *httptest.Server) net.Conn {
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Error(err)
		return conn
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, "POST /n HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\npart")
	return conn
}

// loseIn starts a server for a state. It returns the server, and a function that ends the coming
// request's lease and waits until its handler returns.
func loseIn(t *testing.T, state lostState, major int) (server *httptest.Server, lose func()) {
	locks := newLocks(t, memstore.New(), shortTTL)
	ready, returned := make(chan uint64, 1), make(chan error, 1)
	locked := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !state.halfDuplex {
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				t.Error(err)
			}
		}
		err := state.work(w, r, func() { ready <- carried.Fence(r.Context()) })
		r.Body.Close() // does not read the rest after the loss
		returned <- err
	}))
	server = startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			t.Error("the rest of a request is taken for a request")
		}
		s := &signaling{ResponseWriter: w, ReadCloser: r.Body}
		r.Body = s
		locked.ServeHTTP(s, r)
	}), major)
	return server, func() {
		t.Helper()
		if done, err := locks.Revoke(t.Context(), "/n", dibs.Holder{Fence: servicetest.Receive(t, "the handler is ready", ready)}, "test"); !done || err != nil {
			t.Fatalf("revoke: %v, %v", done, err)
		}
		if err := servicetest.Receive(t, "the handler returns", returned); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("the handler has %v, want ErrLost", err)
		}
		servicetest.Eventually(t, "the name is free", func() bool {
			state, err := locks.Inspect(t.Context(), "/n")
			return err == nil && state.Holding == 0
		})
	}
}

func testLost(t *testing.T, state lostState, major int, want string) {
	server, lose := loseIn(t, state, major)
	responses, read := make(chan string, 1), make(chan struct{})
	go func() {
		response, err := sendPart(t, server) //nolint:bodyclose // received closes it
		<-read                               // a writing handler is blocked
		responses <- received(response, err, state.largeBody)
	}()
	lose()
	close(read)
	if have := servicetest.Receive(t, "the client has a response", responses); have != want {
		t.Errorf("the client has %q, want %q", have, want)
	}
}

// An error write that begins after the loss must end, although the client does not read.
func TestErrorAfterTheLoss(t *testing.T) {
	state := lostState{largeBody: true, work: func(w http.ResponseWriter, r *http.Request, ready func()) error {
		sendError(w)
		ready()
		<-r.Context().Done()
		return writeUntilError(w)
	}}
	for major := 1; major <= 2; major++ {
		t.Run(fmt.Sprint("HTTP", major), func(t *testing.T) { t.Parallel(); testLost(t, state, major, cutError) })
	}
}

// The rest of an unread request must never be taken for the next request.
func TestRestOfAnInterruptedRequest(t *testing.T) {
	for _, state := range lostStates {
		if !strings.Contains(state.name, "in a read") && !strings.Contains(state.name, "Body.Close") {
			continue
		}
		t.Run(state.name, func(t *testing.T) {
			server, lose := loseIn(t, state, 1)
			conn := dialPart(t, server)
			lose()
			buffer := bufio.NewReader(conn)
			response, err := http.ReadResponse(buffer, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body) // cut, if the header was sent
			response.Body.Close()
			fmt.Fprint(conn, "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n") // fails if the connection is closed
			if rest, err := io.ReadAll(buffer); len(rest) > 0 {
				t.Errorf("after the response the server sends %q, %v", rest, err)
			}
		})
	}
}

// The response to the loss should contain headers from a middleware around the lock, but not the
// handler's.
func TestHeadersOfTheAbandonedResponse(t *testing.T) {
	locks := newLocks(t, memstore.New(), shortTTL)
	locked := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Set-Cookie", "Location", "Content-Disposition", "X-Paid", "X-Request-Id"} {
			w.Header().Set(name, "of the handler")
		}
		lose(t, locks, r)
	}))
	w, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "7")
		w.Header().Set("Set-Cookie", "session=1")
		locked.ServeHTTP(w, r)
	}), post(t.Context(), "/n"))
	wantStatus(t, w, http.StatusInternalServerError, 0)
	for name, want := range map[string]string{"Set-Cookie": "session=1", "X-Request-Id": "7", "Location": "", "Content-Disposition": "", "X-Paid": ""} {
		if have := w.Header().Get(name); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
	}
}

// A lock that the function itself finds busy, or cannot reach, is no 409 or 503 after it ran.
func TestBusyInTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, memstore.New())
		inner := locks.Mutex("inner", dibs.Wait(0))
		lease, err := inner.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Unlock()
		for what, work := range map[string]func(ctx context.Context) error{
			"busy":        func(ctx context.Context) error { return inner.Do(ctx, func(context.Context) error { return nil }) },
			"unavailable": func(context.Context) error { return dibs.ErrUnavailable },
			"invalid": func(ctx context.Context) error {
				return locks.Mutex("").Do(ctx, func(context.Context) error { return nil })
			},
		} {
			charged := false
			err := locks.Mutex("order").Do(t.Context(), func(ctx context.Context) error { charged = true; return work(ctx) })
			if e := dibshttp.FromError(err); !charged || e.Status != http.StatusInternalServerError || e.RetryAfter != 0 {
				t.Errorf("%s: have %+v, want 500 without Retry-After", what, e)
			}
			own := &dibshttp.Error{Status: http.StatusTeapot}
			err = locks.Mutex("order").Do(t.Context(), func(ctx context.Context) error { return errors.Join(own, work(ctx)) })
			if e := dibshttp.FromError(err); e != own {
				t.Errorf("%s: have %+v, want that of the function", what, e)
			}
		}
	})
}

// An error of the handler does not hide the loss, which forbids a retry.
func TestLossIsFirst(t *testing.T) {
	own := &dibshttp.Error{Status: http.StatusConflict, Message: "paid already"}
	if e := dibshttp.FromError(errors.Join(own, dibs.ErrLost)); e.Status != http.StatusInternalServerError {
		t.Errorf("have %v, want 500", e)
	}
	if e := dibshttp.FromError(fmt.Errorf("pay: %w", own)); e != own {
		t.Errorf("have %v, want %v", e, own)
	}
}

// Write should remove headers that describe another response's body.
func TestErrorReplacesABody(t *testing.T) {
	w := httptest.NewRecorder()
	for _, name := range []string{"Location", "Content-Disposition", "Content-Range", "Etag"} {
		w.Header().Set(name, "x")
	}
	(&dibshttp.Error{Status: http.StatusConflict}).Write(w)
	for name, values := range w.Header() {
		if values[0] == "x" {
			t.Errorf("%s is left", name)
		}
	}
}
