package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

// post sends a request to a service and returns the answer.
func post(ctx context.Context, s *service, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, http.NoBody))
	return w
}

func TestOrderIsPaidOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, paying := memstore.New(), 0
		var machines []*service
		for range 2 {
			locks := dibs.New(store, dibs.Wait(3*time.Second))
			defer locks.Close()
			machines = append(machines, &service{locks: locks, pay: func(_ context.Context, _ string, fence uint64) error {
				paying++
				if paying != 1 || fence == 0 {
					t.Errorf("%d payments at once, fence %d", paying, fence)
				}
				time.Sleep(2 * time.Second)
				paying--
				return nil
			}})
		}
		first := make(chan int)
		go func() { first <- post(t.Context(), machines[0], "/orders/42/pay").Code }()
		synctest.Wait()
		second := make(chan int)
		go func() { second <- post(t.Context(), machines[1], "/orders/42/pay").Code }()
		synctest.Wait()
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if w := post(hurried, machines[1], "/orders/42/pay"); w.Code != http.StatusConflict || w.Header().Get("Retry-After") == "" {
			t.Errorf("status %d for a client that does not wait, want 409", w.Code)
		}
		if a, b := <-first, <-second; a != http.StatusOK || b != http.StatusOK {
			t.Errorf("status %d and %d, want 200", a, b)
		}
	})
}

func TestStatusOfEachError(t *testing.T) {
	locks := dibs.New(memstore.New())
	s := &service{locks: locks, pay: func(context.Context, string, uint64) error { return errors.New("declined") }}
	if w := post(t.Context(), s, "/orders/1/pay"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "payment failed") {
		t.Errorf("declined: status %d, %s", w.Code, w.Body)
	}
	if w := post(t.Context(), s, "/orders/"+strings.Repeat("9", 600)+"/pay"); w.Code != http.StatusBadRequest {
		t.Errorf("long number: status %d, want 400", w.Code)
	}
	s.pay = func(context.Context, string, uint64) error { return locks.Close() } // the lease ends during the work
	if w := post(t.Context(), s, "/orders/1/pay"); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "outcome unknown") {
		t.Errorf("lost: status %d, %s", w.Code, w.Body)
	}
	if w := post(t.Context(), s, "/orders/1/pay"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("closed: status %d, want 503", w.Code)
	}
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ready", http.NoBody))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("ready: status %d after Close, want 503", w.Code)
	}
}
