package dibshttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// byPath locks a request's path.
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

// serve passes a request to a handler, and returns the response. aborted means that the handler
// asked the server to abort the response.
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
