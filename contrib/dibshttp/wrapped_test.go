package dibshttp_test

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/memstore"
)

// upload is a form with a single file.
func upload(t *testing.T) (body io.Reader, contentType string) {
	t.Helper()
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	file, err := writer.CreateFormFile("file", "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(make([]byte, 1<<16)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return &form, writer.FormDataContentType()
}

// A form's temporary files should be removed after the handler that parses it, but not before the
// end of a middleware that parsed it.
func TestTemporaryFiles(t *testing.T) {
	locks := newLocks(t, memstore.New())
	var parsed atomic.Bool
	parse := func(r *http.Request) {
		parsed.Store(true)
		const memory = 1 // the rest is in a file
		if err := r.ParseMultipartForm(memory); err != nil {
			t.Error(err)
		}
	}
	open := func(r *http.Request) string {
		file, _, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return ""
		}
		defer file.Close()
		return file.(*os.File).Name()
	}
	lock := dibshttp.Lock(byPath(locks))
	for name, handler := range map[string]http.Handler{
		"handler": lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parse(r); open(r) })),
		"panic":   lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { parse(r); panic(http.ErrAbortHandler) })),
		"two locks": lock(dibshttp.Lock(byPath(locks), dibshttp.With(dibs.Reentrant()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			parse(r)
		}))),
		"middleware": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			parse(r)
			lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { open(r) })).ServeHTTP(w, r)
			open(r)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			server := startServer(t, handler, 1)
			body, contentType := upload(t)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/n", body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", contentType)
			if response, err := http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
			}
			server.Close() // net/http removes its files after the response
			if !parsed.Swap(false) {
				t.Error("the handler has not run")
			}
			left, err := os.ReadDir(os.Getenv("TMPDIR"))
			if err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}

// One owner token for all requests would let them run at the same time.
func TestOwnerTokenIsRejected(t *testing.T) {
	locks := newLocks(t, memstore.New())
	h := dibshttp.Lock(byPath(locks), dibshttp.With(dibs.OwnerToken("request-1")))(never(t))
	w, _ := serve(t, h, post(t.Context(), "/n"))
	wantStatus(t, w, dibshttp.FromError(dibs.ErrInvalid).Status, 0)
}

// A nil pointer is no permission to run without a lock.
func TestNilPointer(t *testing.T) {
	var mutex *dibs.Mutex
	h := dibshttp.Lock(func(*http.Request) (dibs.Doer, error) { return mutex, nil })(never(t))
	w, _ := serve(t, h, post(t.Context(), "/n"))
	wantStatus(t, w, http.StatusInternalServerError, 0)
}

// A too large request ends the connection, as without a lock.
func TestTooLarge(t *testing.T) {
	locks := newLocks(t, memstore.New())
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4))
		if tooLarge := new(http.MaxBytesError); !errors.As(err, &tooLarge) {
			t.Errorf("have %v, want a MaxBytesError", err)
		}
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	})
	for name, h := range map[string]http.Handler{"without": read, "with": dibshttp.Lock(byPath(locks))(read)} {
		response, err := send(t.Context(), t, startServer(t, h, 1), http.MethodPost, "/n", bytes.NewReader(make([]byte, 100)))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if !response.Close || response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s a lock: status %d, closed %v", name, response.StatusCode, response.Close)
		}
	}
}

// The handler finds the optional methods of the server's writer.
func TestOptionalMethods(t *testing.T) {
	methods := func(w http.ResponseWriter) (have [3]bool) {
		_, have[0] = w.(http.Flusher)
		_, have[1] = w.(http.Hijacker)
		_, have[2] = w.(http.Pusher)
		return have
	}
	eachProtocol(t, func(t *testing.T, start func(http.Handler) *httptest.Server) {
		locks := newLocks(t, memstore.New())
		var want [3]bool
		locked := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if have := methods(w); have != want {
				t.Errorf("flush, hijack, push: have %v, want %v", have, want)
			}
			pusher, ok := w.(http.Pusher)
			if !ok {
				return
			}
			if err := pusher.Push("/style.css", nil); !errors.Is(err, http.ErrNotSupported) && err.Error() != "feature not supported" {
				t.Errorf("push: %v; the client has disabled it", err)
			}
		}))
		server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			want = methods(w)
			locked.ServeHTTP(w, r)
		}))
		response, err := send(t.Context(), t, server, http.MethodGet, "/n", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	})
}
