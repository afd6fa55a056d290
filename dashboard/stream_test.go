package dashboard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/servicetest"
)

// A sink is a stream's writer.
type sink struct {
	mu        sync.Mutex
	header    http.Header
	status    int
	written   bytes.Buffer
	deadlines int
	deadline  time.Time
	err       error // from Write
}

func newSink() *sink { return &sink{header: make(http.Header)} }

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.written.Write(text)
}

func (s *sink) Flush() {}

func (s *sink) SetWriteDeadline(at time.Time) error {
	s.deadline = at
	if at.IsZero() {
		return nil
	}
	if time.Until(at) != writeTime {
		return errors.New("want a deadline of " + writeTime.String())
	}
	s.deadlines++
	return nil
}

func (s *sink) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.String()
}

func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// open opens a stream, and returns a function that waits for its end.
func open(ctx context.Context, h http.Handler, link string) (s *sink, wait func()) {
	s, done := newSink(), make(chan struct{})
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/"+link, nil)
	go func() {
		defer close(done)
		h.ServeHTTP(s, r)
	}()
	return s, func() { <-done }
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := held(t, "a")
		h := New(store, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		s, wait := open(ctx, h, "events?view=list")
		synctest.Wait()
		wantText(t, s.text(), "event: update\ndata: <div class=\"counts\">\n", "web-7:211")
		wantNoText(t, s.text(), "web-9:88")
		if !s.deadline.IsZero() {
			t.Errorf("between two events there is a deadline, %v", s.deadline)
		}
		if s.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("header %v", s.header)
		}
		acquire(t, store, "b", tokenOf("web-9", 88, driver.KindMutex, 1, ""))
		time.Sleep(1500 * time.Millisecond)
		wantText(t, s.text(), "web-9:88")
		if n := strings.Count(s.text(), "event: "); n != 2 || s.deadlines != n+1 {
			t.Errorf("%d updates, %d deadlines", n, s.deadlines)
		}
		cancel()
		wait()
		if last := s.text(); !strings.HasSuffix(last, "\n\n") {
			t.Errorf("half an event: %q", last[max(0, len(last)-50):])
		}
	})
}

// Each view should have events.
func TestEventsOfEachView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for view, part := range map[string]string{"list": "api:partner", "name&n=api:partner": "3 of 4", "processes": "holds 1", "waits": "<svg", "doctor": "no doctor"} {
			h := New(busyStore(t), Config{})
			ctx, cancel := context.WithCancel(t.Context())
			s, wait := open(ctx, h, "events?view="+view)
			time.Sleep(1500 * time.Millisecond) // less than a waiter lives
			cancel()
			wait()
			wantText(t, s.text(), "event: update\n", part)
		}
	})
}

// Unchanged parts must not be sent again. Without any change, an event must show from time to
// time that the stream works.
func TestEventOfNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stream{writer: newSink(), control: http.NewResponseController(newSink())}
		for _, html := range []string{"<p>a long line</p>\n<p>b</p>\n", "<p>a long line</p>\n<p>b</p>\n", "<p>a long line</p>\r\n<p>c</p>\n", "c\r\r\nd"} {
			if err := s.send(newFragment([]byte(html))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(sameEvery)
		if err := s.send(s.last); err != nil {
			t.Fatal(err)
		}
		const want = "event: update\ndata: <p>a long line</p>\ndata: <p>b</p>\ndata: \n\n" +
			"event: delta\ndata: [0,19,\"<p>c</p>\\n\"]\n\n" + "event: update\ndata: c\ndata: d\n\n" + "event: same\ndata: .\n\n"
		if have := s.writer.(*sink).text(); have != want {
			t.Errorf("want %q, have %q", want, have)
		}
	})
}

// Many tabs must cost the store no more than a single tab.
func TestManyStreamsPollOnce(t *testing.T) {
	calls := func(streams int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			store := &countingStore{Full: driver.Complete(busyStore(t))}
			h := New(store, Config{})
			ctx, cancel := context.WithCancel(t.Context())
			var waits []func()
			for i := range streams {
				view := []string{"list", "name&n=account:1", "processes", "waits"}[i%4]
				_, wait := open(ctx, h, "events?view="+view)
				waits = append(waits, wait)
			}
			time.Sleep(10500 * time.Millisecond)
			cancel()
			for _, wait := range waits {
				wait()
			}
			n = store.lists.Load() + store.inspectAlls.Load() + store.inspects.Load()
		})
		return n
	}
	one, many := calls(1), calls(20)
	if one < 20 || one != many {
		t.Errorf("one stream: %d calls of the store, 20 streams: %d", one, many)
	}
}

// A fragment is rendered once for all streams.
func TestManyStreamsRenderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Full: driver.Complete(held(t, "a"))}
		h := New(store, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			_, wait := open(ctx, h, "events?view=name&n=free") // a name outside the list is inspected
			defer wait()
		}
		time.Sleep(3500 * time.Millisecond)
		cancel()
		const polls, each = 4, 2 // one request checks that the store is there
		if n := store.inspects.Load(); n != polls*each {
			t.Errorf("the store was asked %d times for the state of a name, want %d", n, polls*each)
		}
	})
}

func TestStreamEndsIfTheClientIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Full: driver.Complete(held(t, "a"))}
		s, wait := open(t.Context(), New(store, Config{}), "events?view=list")
		synctest.Wait()
		s.fail(errors.New("broken pipe"))
		wait() // without the context's end
		synctest.Wait()
		before := store.inspectAlls.Load()
		time.Sleep(time.Minute)
		if n := store.inspectAlls.Load(); n != before {
			t.Errorf("%d polls although nobody watches", n-before)
		}
	})
}

func TestNumberOfStreamsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(held(t, "a"), Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var waits []func()
		for range maxStreams {
			_, wait := open(ctx, h, "events?view=list")
			waits = append(waits, wait)
		}
		synctest.Wait()
		w := get(t, h, "events?view=list")
		wantStatus(t, w, http.StatusServiceUnavailable, "Too many pages")
		if w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		cancel()
		for _, wait := range waits {
			wait()
		}
		ctx, cancel = context.WithCancel(t.Context())
		s, wait := open(ctx, h, "events?view=list")
		time.Sleep(2 * time.Second)
		cancel()
		wait()
		wantText(t, s.text(), "event: update")
	})
}

// A name's page is newer than the current snapshot, which must not be sent.
func TestEventsAfterThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(held(t, "a"), Config{})
		body(t, h, "")
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		s, wait := open(ctx, h, "events?view=name&n=a&after="+strconv.FormatInt(time.Now().UnixMilli(), 10))
		synctest.Wait()
		wantNoText(t, s.text(), "event:")
		time.Sleep(1500 * time.Millisecond)
		wantText(t, s.text(), "event: update")
		cancel()
		wait()
	})
}

// While the store is away, the events say so, and go on.
func TestEventsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &changedStore{Full: driver.Complete(held(t, "a"))}
		ctx, cancel := context.WithCancel(t.Context())
		h := New(store, Config{})
		list, waitList := open(ctx, h, "events?view=list")
		name, waitName := open(ctx, h, "events?view=name&n=free")
		time.Sleep(1500 * time.Millisecond)
		store.away.Store(true)
		time.Sleep(2 * time.Second)
		wantText(t, list.text(), "The store does not answer", "These are the states of its last answer.")
		wantText(t, name.text(), "could not be shown")
		store.away.Store(false)
		time.Sleep(2 * time.Second)
		cancel()
		waitList()
		waitName()
		events := strings.Split(strings.TrimSpace(list.text()), "\n\n")
		wantNoText(t, events[len(events)-1], "does not answer")
	})
}

// plain is a writer that cannot flush.
type plain struct{ w http.ResponseWriter }

func (p plain) Header() http.Header            { return p.w.Header() }
func (p plain) Write(text []byte) (int, error) { return p.w.Write(text) }
func (p plain) WriteHeader(status int)         { p.w.WriteHeader(status) }

func TestEventsNeedAFlusher(t *testing.T) {
	for _, encoding := range []string{"", "gzip"} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events?view=list", nil)
		r.Header.Set("Accept-Encoding", encoding)
		New(held(t, "a"), Config{}).ServeHTTP(plain{w}, r)
		wantStatus(t, w, http.StatusNotImplemented, "cannot send events")
		wantText(t, w.Header().Get("Content-Type"), "text/html")
	}
}

// startStream starts a server until the test ends, and requests the list's events.
func startStream(t *testing.T, server *http.Server) net.Conn {
	t.Helper()
	l := servicetest.NewPipes()
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	client, conn := net.Pipe()
	l.Give(conn)
	if _, err := io.WriteString(client, "GET /events?view=list HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return client
}

// A server's time limits should not end a stream.
func TestEventsOfAServerWithTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 2 * time.Second
		server := &http.Server{Handler: New(held(t, "a"), Config{}), ReadTimeout: limit, WriteTimeout: limit}
		client := startStream(t, server)
		began, events := time.Now(), 0
		for in := bufio.NewReader(client); time.Since(began) < 5*limit; {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			if strings.HasPrefix(line, "event: ") {
				events++
			}
		}
		if events < 9 { // one a second
			t.Errorf("%d events within %v", events, 5*limit)
		}
		client.Close()
	})
}

// A client that does not read ends its stream after the write limit.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &countingStore{Full: driver.Complete(held(t, "a"))}
		server := &http.Server{Handler: New(store, Config{})}
		client := startStream(t, server)
		time.Sleep(2 * writeTime)
		before := store.inspectAlls.Load()
		time.Sleep(time.Minute)
		if n := store.inspectAlls.Load(); n != before {
			t.Errorf("%d polls for a client that does not read", n-before)
		}
		client.Close()
	})
}
