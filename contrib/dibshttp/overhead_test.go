package dibshttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
)

// discard is a response writer without costs.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

var bare = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) })

// BenchmarkHandler measures a request without its connection: the bare handler, the lock alone, and
// the handler under the lock. The difference between the last two is the middleware.
func BenchmarkHandler(b *testing.B) {
	locks := newLocks(b, memstore.New())
	lockAlone := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := locks.Mutex(r.URL.Path).Lock(r.Context())
		if err != nil {
			b.Error(err)
			return
		}
		bare(w, r)
		if err := lease.Unlock(); err != nil {
			b.Error(err)
		}
	})
	none := func(*http.Request) (dibs.Doer, error) { return nil, nil }
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"bare", bare},
		{"nolock", dibshttp.Lock(none)(bare)},
		{"lock alone", lockAlone},
		{"middleware", dibshttp.Lock(byPath(locks))(bare)},
	} {
		b.Run(c.name, func(b *testing.B) {
			w, r := discard{http.Header{}}, post(b.Context(), "/order/42")
			b.ReportAllocs()
			for b.Loop() {
				c.handler.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkOverhead measures a request over an HTTP/1 connection: without a lock, and with locks in
// memory and on a local Redis.
func BenchmarkOverhead(b *testing.B) {
	b.Run("bare", func(b *testing.B) { measureRequests(b, bare) })
	b.Run("dibs", func(b *testing.B) {
		measureRequests(b, dibshttp.Lock(byPath(newLocks(b, memstore.New())))(bare))
	})
	b.Run("redis", func(b *testing.B) {
		url, err := redisurl.Parse(redistest.Start(b).URL())
		if err != nil {
			b.Fatal(err)
		}
		rdb, err := url.Open()
		if err != nil {
			b.Fatal(err)
		}
		defer rdb.Close()
		locks := dibs.New(goredisstore.New(rdb))
		defer locks.Close()
		measureRequests(b, dibshttp.Lock(byPath(locks))(bare))
	})
}

func measureRequests(b *testing.B, handler http.Handler) {
	server := httptest.NewServer(handler)
	defer server.Close()
	b.ReportAllocs()
	for b.Loop() {
		response, err := server.Client().Post(server.URL+"/order/42", "", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != "done" {
			b.Fatalf("%d %q, %v", response.StatusCode, body, err)
		}
	}
}
