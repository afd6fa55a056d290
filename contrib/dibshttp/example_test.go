package dibshttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/memstore"
)

// request sends a request to a handler, and prints the response.
func request(h http.Handler, method, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), method, path, http.NoBody))
	fmt.Printf("%d %s", w.Code, w.Body)
	if after := w.Header().Get("Retry-After"); after != "" {
		fmt.Printf("retry after %s s\n", after)
	}
}

// Each order is paid by a single request at a time, on however many machines the service runs.
func ExampleLock() {
	locks := dibs.New(memstore.New()) // goredisstore.New(rdb) in production
	defer locks.Close()

	lock := dibshttp.Lock(func(r *http.Request) (dibs.Doer, error) {
		return locks.Mutex("order:"+r.PathValue("id"), dibs.Wait(time.Millisecond)), nil
	})
	pay := func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context() // ends when the lease is lost
		fence, err := dibs.Fence(ctx)
		if err != nil {
			dibshttp.FromError(err).Write(w)
			return
		}
		fmt.Fprintf(w, "order %s is paid, with a fence: %v\n", r.PathValue("id"), fence > 0)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", lock(http.HandlerFunc(pay)))

	request(mux, http.MethodPost, "/orders/42/pay")

	err := locks.Mutex("order:42").Do(context.Background(), func(context.Context) error { // somebody else
		request(mux, http.MethodPost, "/orders/42/pay")
		return nil
	})
	fmt.Println(err)
	// Output:
	// 200 order 42 is paid, with a fence: true
	// 409 locked by another request
	// retry after 30 s
	// <nil>
}

// The lock function chooses the primitive and the names, or rejects the request.
func ExampleLock_names() {
	locks := dibs.New(memstore.New())
	defer locks.Close()

	lock := dibshttp.Lock(func(r *http.Request) (dibs.Doer, error) {
		from, to := r.FormValue("from"), r.FormValue("to")
		switch {
		case r.Method == http.MethodGet:
			return nil, nil // no lock
		case from == "" || to == "":
			return nil, &dibshttp.Error{Status: http.StatusUnprocessableEntity, Message: "from and to are required"}
		}
		return locks.All([]string{"account:" + from, "account:" + to}), nil
	}, dibshttp.With(dibs.Wait(3*time.Second)))
	transfer := lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, from := dibs.FenceOf(r.Context(), "account:1")
		_, to := dibs.FenceOf(r.Context(), "account:2")
		fmt.Fprintln(w, "two fences:", from == nil && to == nil)
	}))

	request(transfer, http.MethodPost, "/transfer?from=1&to=2")
	request(transfer, http.MethodPost, "/transfer?from=1")
	request(transfer, http.MethodGet, "/transfer?from=1&to=2")
	// Output:
	// 200 two fences: true
	// 422 from and to are required
	// 200 two fences: false
}

// OnError logs the details hidden from the client, and writes its own body.
func ExampleOnError() {
	locks := dibs.New(memstore.New(), dibs.Label("web"))
	defer locks.Close()

	lock := dibshttp.Lock(
		func(*http.Request) (dibs.Doer, error) { return locks.Mutex("report", dibs.Wait(0)), nil },
		dibshttp.BusyStatus(http.StatusLocked),
		dibshttp.OnError(func(w http.ResponseWriter, r *http.Request, err *dibshttp.Error) {
			var busy *dibs.BusyError
			fmt.Println("log:", r.URL.Path, "busy:", errors.As(err, &busy)) // busy.Holder is for the log
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(err.Status)
			fmt.Fprintf(w, "{\"status\":%d,\"detail\":%q}\n", err.Status, err.Message)
		}),
	)
	h := lock(http.NotFoundHandler())
	_ = locks.Mutex("report").Do(context.Background(), func(context.Context) error {
		request(h, http.MethodPost, "/report")
		return nil
	})
	// Output:
	// log: /report busy: true
	// 423 {"status":423,"detail":"locked by another request"}
}

// A handler that calls Do itself responds with the same statuses.
func ExampleFromError() {
	locks := dibs.New(memstore.New())
	locks.Close()

	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := locks.Mutex("report").Do(r.Context(), func(context.Context) error { return nil })
		if err != nil {
			dibshttp.FromError(err).Write(w)
		}
	})
	request(h, http.MethodPost, "/report")
	// Output:
	// 503 locks are unavailable
	// retry after 5 s
}

func ExampleHealth() {
	locks := dibs.New(memstore.New())
	mux := http.NewServeMux()
	mux.Handle("GET /ready", dibshttp.Health(locks.Check))

	request(mux, http.MethodGet, "/ready")
	locks.Close()
	request(mux, http.MethodGet, "/ready")
	// Output:
	// 200 ready
	// 503 not ready
}
