package dashboard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/dashboard"
	"github.com/dibslock/dibs/memstore"
)

// The dashboard is an http.Handler below any path. Whoever may see it, and who may revoke,
// is up to the program.
func Example() {
	store := memstore.New()
	locks := dibs.New(store)
	defer locks.Close()
	lease, err := locks.Mutex("order:42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Unlock()

	board := dashboard.New(store, dashboard.Config{
		Title: "shop",
		Allow: func(r *http.Request) bool { return r.Header.Get("X-Role") == "operator" },
	})
	mux := http.NewServeMux()
	mux.Handle("/locks/", http.StripPrefix("/locks", board))
	server := httptest.NewServer(mux)
	defer server.Close()

	answer, err := http.Get(server.URL + "/locks/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	fmt.Println(answer.StatusCode, err)
	fmt.Println(strings.Contains(string(page), "order:42"))
	// Output:
	// 200 <nil>
	// true
}
