package dibshttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// generous is for what must happen soon, on a busy machine.
const generous = 20 * time.Second

// byPath locks the path of a request.
func byPath(locks *dibs.Client) func(*http.Request) (dibs.Doer, error) {
	return func(r *http.Request) (dibs.Doer, error) { return locks.Mutex(r.URL.Path), nil }
}

// newLocks returns a client on a store, which is closed when the test ends.
func newLocks(t testing.TB, store *memstore.Store, options ...dibs.Option) *dibs.Client {
	t.Helper()
	locks := dibs.New(store, options...)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// serve passes one request to a handler, and returns the response. aborted means that the
// handler has asked the server to abort the response.
func serve(t *testing.T, h http.Handler, r *http.Request) (w *httptest.ResponseRecorder, aborted bool) {
	t.Helper()
	w = httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			aborted = true
		}
	}()
	h.ServeHTTP(w, r)
	return w, false
}

func post(ctx context.Context, path string) *http.Request {
	return httptest.NewRequestWithContext(ctx, http.MethodPost, path, http.NoBody)
}

// wantStatus checks the status and the header Retry-After, in seconds; zero is none.
func wantStatus(t *testing.T, w *httptest.ResponseRecorder, status, retryAfter int) {
	t.Helper()
	seconds, _ := strconv.Atoi(w.Header().Get("Retry-After"))
	if w.Code != status || seconds != retryAfter {
		t.Errorf("have status %d and Retry-After %q, want %d and %d; body %q", w.Code, w.Header().Get("Retry-After"), status, retryAfter, w.Body)
	}
}

// wantFree checks that nobody holds a name and nobody waits for it.
func wantFree(t *testing.T, locks *dibs.Client, name string) {
	t.Helper()
	state, err := locks.Inspect(t.Context(), name)
	if err != nil || state.Holding != 0 || state.Waiting != 0 {
		t.Errorf("%s: have %d holders and %d waiters, %v, want none", name, state.Holding, state.Waiting, err)
	}
}

// wantNoGoroutines checks that nothing runs after the test and its other clean-ups. Call it
// first. The test must not be parallel.
func wantNoGoroutines(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(generous); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) { // between polls
			if time.Now().After(end) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}

// eventually polls a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(generous); !condition(); time.Sleep(5 * time.Millisecond) { // between polls
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, generous)
		}
	}
}

// receive returns the next value of a channel.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(generous):
		t.Fatalf("%s: not within %v", what, generous)
	}
	panic("unreachable")
}
