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
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/memstore"
)

// discard is a response writer that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// BenchmarkHandler measures one request without its connection: the plain handler, the lock
// alone, and the handler under the lock. The difference of the last two is the middleware.
func BenchmarkHandler(b *testing.B) {
	locks := newLocks(b, memstore.New())
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) })
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := locks.Mutex(r.URL.Path).Lock(r.Context())
		if err != nil {
			b.Error(err)
			return
		}
		plain(w, r)
		if err := lease.Unlock(); err != nil {
			b.Error(err)
		}
	})
	none := func(*http.Request) (dibs.Doer, error) { return nil, nil }
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"plain", plain},
		{"nolock", dibshttp.Lock(none)(plain)},
		{"bare", bare},
		{"middleware", dibshttp.Lock(byPath(locks))(plain)},
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

// BenchmarkServer measures one request over a connection of HTTP/1, with locks in memory and
// on a Redis of this machine.
func BenchmarkServer(b *testing.B) {
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("done")) })
	url, err := redisurl.Parse(redistest.Start(b).URL())
	if err != nil {
		b.Fatal(err)
	}
	rdb, err := url.Open()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { rdb.Close() })
	onRedis := dibs.New(goredisstore.New(rdb))
	b.Cleanup(func() { onRedis.Close() })
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{
		{"plain", plain},
		{"memory", dibshttp.Lock(byPath(newLocks(b, memstore.New())))(plain)},
		{"redis", dibshttp.Lock(byPath(onRedis))(plain)},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			b.ReportAllocs()
			for b.Loop() {
				response, err := server.Client().Post(server.URL+"/order/42", "", http.NoBody)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
}
