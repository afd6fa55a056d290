// Web is an HTTP service that pays each order once, on however many machines it runs.
//
//	DIBS_URL=redis://localhost:6379 go run ./examples/web
//	curl -X POST localhost:8080/orders/42/pay
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/examples/internal/exstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, "localhost:8080", os.Getenv("DIBS_URL"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. Then it lets requests finish, and closes the locks after
// them.
func run(ctx context.Context, addr, url string) error {
	store, err := exstore.Open(ctx, url)
	if err != nil {
		return err
	}
	defer store.Close()
	locks := dibs.New(store, dibs.Wait(3*time.Second))
	defer locks.Close()

	s := &service{locks: locks, pay: func(context.Context, string, uint64) error { return nil }}
	server := &http.Server{Addr: addr, Handler: s.routes(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	slog.Info("serving", "addr", addr, "locks", store.Description)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return server.Shutdown(grace)
}

// A service pays orders. pay is the work under the lock; it passes the fence on to the
// database.
type service struct {
	locks *dibs.Client
	pay   func(ctx context.Context, order string, fence uint64) error
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/pay", s.payOrder)
	mux.HandleFunc("GET /ready", s.ready)
	return mux
}

// payOrder holds the lock for as long as the payment takes. If the client hangs up, the
// request's context ends, and with it the waiting or the work. The lock is released in any
// case.
func (s *service) payOrder(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("id")
	err := s.locks.Mutex("order:"+order).Do(r.Context(), func(ctx context.Context) error {
		fence, err := dibs.Fence(ctx)
		if err != nil {
			return err
		}
		return s.pay(ctx, order, fence)
	})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	fmt.Fprintf(w, "order %s is paid\n", order)
}

// fail answers with an error status: Retry-After is set if the client may try again.
func (s *service) fail(w http.ResponseWriter, r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "payment failed", "path", r.URL.Path, "err", err)
	switch {
	case errors.Is(err, dibs.ErrLost): // first: work may have run without the lock
		http.Error(w, "outcome unknown: look at the order before you try again", http.StatusInternalServerError)
	case errors.Is(err, dibs.ErrBusy):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "another request pays this order", http.StatusConflict)
	case errors.Is(err, dibs.ErrUnavailable), errors.Is(err, dibs.ErrClosed):
		w.Header().Set("Retry-After", "5")
		http.Error(w, "locks are unavailable", http.StatusServiceUnavailable)
	case errors.Is(err, dibs.ErrInvalid): // such as a too long order number
		http.Error(w, "no such order", http.StatusBadRequest)
	default:
		http.Error(w, "payment failed", http.StatusInternalServerError)
	}
}

// ready is for a readiness probe.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.locks.Check(r.Context()); err != nil {
		http.Error(w, "lock store unavailable", http.StatusServiceUnavailable)
	}
}
