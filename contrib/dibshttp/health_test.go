package dibshttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

func probe(t *testing.T, check func(context.Context) error, method string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	dibshttp.Health(check).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/ready", http.NoBody))
	if have := w.Header().Get("Cache-Control"); w.Code != http.StatusMethodNotAllowed && have != "no-store" {
		t.Errorf("Cache-Control %q, want no-store", have)
	}
	return w
}

func TestHealth(t *testing.T) {
	locks := newLocks(t, memstore.New())
	if w := probe(t, locks.Check, http.MethodGet); w.Code != http.StatusOK || w.Body.String() != "ready\n" {
		t.Errorf("have %d %q, want 200", w.Code, w.Body)
	}
	locks.Close()
	if w := probe(t, locks.Check, http.MethodGet); w.Code != http.StatusServiceUnavailable || w.Body.String() != "not ready\n" {
		t.Errorf("after Close: have %d %q, want 503", w.Code, w.Body)
	}
	secret := func(context.Context) error { return errors.New("redis://app:secret@10.0.0.1") }
	if w := probe(t, secret, http.MethodGet); w.Code != http.StatusServiceUnavailable || w.Body.String() != "not ready\n" {
		t.Errorf("have %d %q, want 503", w.Code, w.Body)
	}
	if w := probe(t, locks.Check, http.MethodPost); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: have %d, Allow %q, want 405", w.Code, w.Header().Get("Allow"))
	}
}

func TestHealthHead(t *testing.T) {
	servicetest.WantNoGoroutines(t)
	locks := newLocks(t, memstore.New())
	server := startServer(t, dibshttp.Health(locks.Check), 1)
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		response, err := send(t.Context(), t, server, http.MethodHead, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if response.Body.Close(); response.StatusCode != want || len(body) > 0 || err != nil {
			t.Errorf("have %d %q, %v, want %d without a body", response.StatusCode, body, err, want)
		}
		locks.Close()
	}
}

// frozen is an unresponsive store.
type frozen struct{ *driver.Full }

func (frozen) Inspect(ctx context.Context, _ string) (driver.State, error) {
	<-ctx.Done()
	return driver.State{}, &driver.UnavailableError{Op: "inspect", Cause: context.Cause(ctx)}
}

func TestHealthHasATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(frozen{driver.Complete(memstore.New())})
		defer locks.Close()
		begin := time.Now()
		if w := probe(t, locks.Check, http.MethodGet); w.Code != http.StatusServiceUnavailable {
			t.Errorf("have %d, want 503", w.Code)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
	})
}
