package dibsprom_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsprom"
	"github.com/dibslock/dibs/memstore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The locks' metrics are on the page that Prometheus scrapes.
func Example() {
	registry := prometheus.NewRegistry() // prometheus.DefaultRegisterer in most programs
	metrics, err := dibsprom.New(registry, dibsprom.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	locks := dibs.New(memstore.New(), dibs.Observe(metrics.Hooks())) // goredisstore.New(rdb) in production
	defer locks.Close()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	err = locks.Mutex("order:42").Do(context.Background(), func(ctx context.Context) error {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody))
		for line := range strings.Lines(w.Body.String()) {
			name, labels, _ := strings.Cut(line, "{")
			if (name == "dibs_acquire_seconds_count" || name == "dibs_holding") && strings.Contains(labels, "order:*") {
				fmt.Print(line)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// dibs_acquire_seconds_count{class="order:*",kind="mutex",result="acquired"} 1
	// dibs_holding{class="order:*"} 1
}
