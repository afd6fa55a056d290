package dibshttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibshttp"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

// ok is a handler that should not fail.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })

// never is a handler that should not run.
func never(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") })
}

func TestHandlerHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, memstore.New())
		h := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := locks.Mutex("/order/7").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("a second lock during the handler: %v, want ErrBusy", err)
			}
			if carried.Fence(r.Context()) == 0 {
				t.Error("the context of the request has no fence")
			}
			if r.PathValue("id") != "7" {
				t.Errorf("path value %q, want 7", r.PathValue("id"))
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "done")
		}))
		mux := http.NewServeMux()
		mux.Handle("POST /order/{id}", h)
		w, aborted := serve(t, mux, post(t.Context(), "/order/7"))
		if wantStatus(t, w, http.StatusCreated, 0); w.Body.String() != "done" || aborted {
			t.Errorf("have body %q, aborted %v", w.Body, aborted)
		}
		servicetest.WantFree(t, locks, "/order/7")
	})
}

func TestNoLock(t *testing.T) {
	locks := newLocks(t, memstore.New())
	none := func(*http.Request) (dibs.Doer, error) { return nil, nil }
	w, _ := serve(t, dibshttp.Lock(none)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if carried.Fence(r.Context()) != 0 {
			t.Error("the context has a lease")
		}
	})), post(t.Context(), "/n"))
	wantStatus(t, w, http.StatusOK, 0)
	servicetest.WantFree(t, locks, "/n")
}

// Retry-After should be the expiry of a crashed holder's lease, plus a second for each waiter.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		holder, locks := newLocks(t, store), newLocks(t, store)
		h := dibshttp.Lock(byPath(locks), dibshttp.With(dibs.Wait(0)))(never(t))

		lease, err := holder.Mutex("/n").Lock(t.Context(), dibs.TTL(9500*time.Millisecond), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		w, _ := serve(t, h, post(t.Context(), "/n"))
		wantStatus(t, w, http.StatusConflict, 10)
		time.Sleep(9 * time.Second) // in the bubble
		w, _ = serve(t, h, post(t.Context(), "/n"))
		wantStatus(t, w, http.StatusConflict, 1)
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}

		// Two requests wait, and the next gives up behind them.
		if lease, err = holder.Mutex("/n").Lock(t.Context(), dibs.TTL(10*time.Second), dibs.NoRenew()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go holder.Mutex("/n").Lock(ctx)
			synctest.Wait()
		}
		waiting := dibshttp.Lock(byPath(locks), dibshttp.With(dibs.Wait(time.Second)))(never(t))
		w, _ = serve(t, waiting, post(t.Context(), "/n"))
		wantStatus(t, w, http.StatusConflict, 10+2)
		cancel()
		synctest.Wait()

		// A reserved name should be unavailable for exactly that time.
		lease.Unlock()
		if err := holder.Mutex("/n").Do(t.Context(), func(context.Context) error { return nil }, dibs.MinHold(2*time.Minute)); err != nil {
			t.Fatal(err)
		}
		w, _ = serve(t, h, post(t.Context(), "/n"))
		wantStatus(t, w, http.StatusConflict, 120)
	})
}

// failing is a store whose operations fail.
type failing struct {
	*driver.Full
	err error
}

func (s failing) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, s.err
}

// busyFor is a held lock.
type busyFor dibs.BusyError

func (b busyFor) Do(context.Context, func(context.Context) error, ...dibs.Option) error {
	busy := dibs.BusyError(b)
	return fmt.Errorf("wrapped: %w", &busy)
}

// Each error that keeps the handler from running should have a status. No body should contain a
// token, a host or a name.
func TestStatusOfEachError(t *testing.T) {
	const secret = "web-7:211:secret"
	held := func(remaining time.Duration, ahead int) func(*dibs.Client) dibs.Doer {
		return func(*dibs.Client) dibs.Doer {
			return busyFor{Name: secret, Holder: secret, Remaining: max(remaining, 0), NeverExpires: remaining < 0, Ahead: ahead}
		}
	}
	outage := &driver.UnavailableError{Op: "acquire", Name: secret, Cause: errors.New("dial " + secret)}
	cases := []struct {
		name               string
		store              driver.Store
		lock               func(locks *dibs.Client) dibs.Doer
		close              bool
		err                error // from the lock function
		status, retryAfter int
	}{
		{name: "busy", lock: held(2500*time.Millisecond, 0), status: 409, retryAfter: 3},
		{name: "exact", lock: held(3*time.Second, 0), status: 409, retryAfter: 3},
		{name: "unknown", lock: held(0, 0), status: 409, retryAfter: 1},
		{name: "soon", lock: held(time.Millisecond, 2), status: 409, retryAfter: 3},
		{name: "never expires", lock: held(-1, 0), status: 409, retryAfter: 30},
		{name: "long queue", lock: held(time.Second, 1<<40), status: 409, retryAfter: 31},
		{name: "outage", store: failing{driver.Complete(memstore.New()), outage}, status: 503, retryAfter: 5},
		{name: "refused", store: failing{driver.Complete(memstore.New()), &driver.UnavailableError{Op: "acquire", Cause: outage, Refused: true}}, status: 503, retryAfter: 5},
		{name: "closed", close: true, status: 503, retryAfter: 5},
		{name: "long name", lock: func(l *dibs.Client) dibs.Doer { return l.Mutex(strings.Repeat(secret, 99)) }, status: 400},
		{name: "empty name", lock: func(l *dibs.Client) dibs.Doer { return l.Mutex("") }, status: 400},
		{name: "wrong type", store: failing{driver.Complete(memstore.New()), driver.ErrWrongType}, status: 500},
		{name: "lock function", err: errors.New(secret), status: 400},
		{name: "own status", err: fmt.Errorf("x: %w", &dibshttp.Error{Status: 404, Message: "no such order", RetryAfter: time.Millisecond}), status: 404, retryAfter: 1},
		{name: "no status", err: &dibshttp.Error{Err: errors.New(secret)}, status: 500},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.store == nil {
					c.store = memstore.New()
				}
				locks := dibs.New(c.store)
				defer locks.Close()
				if c.close {
					locks.Close()
				}
				lock := func(*http.Request) (dibs.Doer, error) {
					if c.err != nil || c.lock == nil {
						return locks.Mutex("n"), c.err
					}
					return c.lock(locks), nil
				}
				var reported *dibshttp.Error
				for _, h := range []http.Handler{
					dibshttp.Lock(lock)(never(t)),
					dibshttp.Lock(lock, dibshttp.OnError(func(_ http.ResponseWriter, _ *http.Request, err *dibshttp.Error) { reported = err }))(never(t)),
				} {
					w, _ := serve(t, h, post(t.Context(), "/n"))
					wantStatus(t, w, c.status, c.retryAfter)
					if strings.Contains(w.Body.String(), "web-7") || w.Body.Len() < 5 {
						t.Errorf("body %q", w.Body)
					}
					if w.Header().Get("Cache-Control") != "no-store" {
						t.Errorf("Cache-Control %q, want no-store", w.Header().Get("Cache-Control"))
					}
				}
				if reported == nil || strings.Contains(reported.Error(), "web-7") {
					t.Errorf("OnError has %v", reported)
				}
			})
		})
	}
}

func TestBusyStatus(t *testing.T) {
	busy := func(*http.Request) (dibs.Doer, error) { return busyFor{Remaining: time.Second}, nil }
	for set, want := range map[int]int{http.StatusLocked: 423, http.StatusTooManyRequests: 429, http.StatusOK: 500} {
		w, _ := serve(t, dibshttp.Lock(busy, dibshttp.BusyStatus(set))(never(t)), post(t.Context(), "/n"))
		wantStatus(t, w, want, 1)
	}
}

func TestOnErrorWritesTheResponse(t *testing.T) {
	busy := func(*http.Request) (dibs.Doer, error) { return busyFor{Name: "n", Remaining: time.Second}, nil }
	h := dibshttp.Lock(busy, dibshttp.OnError(func(w http.ResponseWriter, r *http.Request, err *dibshttp.Error) {
		var cause *dibs.BusyError
		if r.URL.Path != "/n" || !errors.As(err, &cause) || cause.Name != "n" || err.Status != http.StatusConflict {
			t.Errorf("have %v for %s", err, r.URL)
		}
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, `{"error":%q}`, err.Message)
	}))(never(t))
	w, _ := serve(t, h, post(t.Context(), "/n"))
	if w.Code != http.StatusTeapot || w.Body.String() != `{"error":"locked by another request"}` {
		t.Errorf("have %d %q", w.Code, w.Body)
	}
}

// A client that disconnects while it waits leaves neither a lock nor a queue entry.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		holder, locks := newLocks(t, store), newLocks(t, store)
		lease, err := holder.Mutex("/n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		w, _ := serve(t, dibshttp.Lock(byPath(locks))(never(t)), post(ctx, "/n"))
		if waited := time.Since(begin); waited != 3*time.Second {
			t.Errorf("waited %v, want 3s", waited)
		}
		wantStatus(t, w, http.StatusConflict, 28) // 27.5 s at the last heartbeat, 2.5 s after the beginning
		w, _ = serve(t, dibshttp.Lock(byPath(locks))(never(t)), post(ctx, "/n"))
		wantStatus(t, w, http.StatusServiceUnavailable, 5) // nothing was sent
		lease.Unlock()
		synctest.Wait()
		servicetest.WantFree(t, locks, "/n")
	})
}

func TestPanicPassesThrough(t *testing.T) {
	for _, value := range []any{"bug", http.ErrAbortHandler} {
		locks := newLocks(t, memstore.New())
		func() {
			defer func() {
				if p := recover(); p != value {
					t.Errorf("recovered %v, want %v", p, value)
				}
			}()
			h := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
			h.ServeHTTP(httptest.NewRecorder(), post(t.Context(), "/n"))
		}()
		servicetest.WantFree(t, locks, "/n")
	}
}

// A handler that loses its lease should not succeed, whatever it does.
func TestLost(t *testing.T) {
	late := func(w http.ResponseWriter) error { _, err := fmt.Fprint(w, "late"); return err }
	cases := []struct {
		name    string
		before  func(w http.ResponseWriter)
		after   func(w http.ResponseWriter) error
		writer  func(http.ResponseWriter) http.ResponseWriter // nil: the recorder, which can flush, but not hijack
		aborted bool
		status  int
		body    string
	}{
		{name: "nothing", status: 500, body: "outcome unknown"},
		{name: "late write", after: late, status: 500, body: "outcome unknown"},
		{name: "late success", after: func(w http.ResponseWriter) error {
			w.Header().Set("Etag", "x")
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(http.StatusOK)
			return late(w)
		}, status: 500, body: "outcome unknown"},
		{name: "late error", after: func(w http.ResponseWriter) error {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return dibs.ErrLost
		}, status: 500, body: "outcome unknown"},
		{name: "header", before: func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) }, after: late, aborted: true, status: 201},
		{name: "second header", before: func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusInternalServerError) // net/http ignores it
		}, after: late, aborted: true, status: 201},
		{name: "upgrade", before: func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) }, status: 101},
		{name: "no flusher", before: func(w http.ResponseWriter) {
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, http.ErrNotSupported) {
				w.WriteHeader(http.StatusTeapot)
			}
		}, after: late, writer: func(w http.ResponseWriter) http.ResponseWriter { return struct{ http.ResponseWriter }{w} }, status: 500, body: "outcome unknown"},
		{name: "redirect", before: func(w http.ResponseWriter) { w.WriteHeader(http.StatusSeeOther) }, after: late, aborted: true, status: 303},
		{name: "body", before: func(w http.ResponseWriter) { fmt.Fprint(w, "part") }, after: late, aborted: true, status: 200, body: "part"},
		{name: "flush", before: func(w http.ResponseWriter) { w.(http.Flusher).Flush() }, after: late, aborted: true, status: 200},
		{name: "controller", before: func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, after: func(w http.ResponseWriter) error {
			return http.NewResponseController(w).Flush()
		}, aborted: true, status: 200},
		{name: "late hijack", after: func(w http.ResponseWriter) error {
			_, _, err := http.NewResponseController(w).Hijack()
			return err
		}, writer: func(w http.ResponseWriter) http.ResponseWriter {
			return struct {
				http.Hijacker
				http.ResponseWriter
			}{nil, w}
		}, status: 500, body: "outcome unknown"},
		{name: "late push", after: func(w http.ResponseWriter) error {
			return w.(http.Pusher).Push("/style.css", nil)
		}, writer: func(w http.ResponseWriter) http.ResponseWriter {
			return struct {
				http.Pusher
				http.ResponseWriter
			}{nil, w}
		}, status: 500, body: "outcome unknown"},
		{name: "error", before: func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, after: func(w http.ResponseWriter) error {
			if _, err := io.WriteString(w, "no such order"); err != nil {
				return fmt.Errorf("the body of an error: %w", err)
			}
			return dibs.ErrLost
		}, status: 404, body: "no such order"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locks := newLocks(t, store)
				locked := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.before != nil {
						c.before(w)
					}
					store.LoseData()
					<-r.Context().Done()
					if cause := context.Cause(r.Context()); !errors.Is(cause, dibs.ErrLost) {
						t.Errorf("the context ends with %v, want ErrLost", cause)
					}
					if c.after != nil {
						if err := c.after(w); !errors.Is(err, dibs.ErrLost) {
							t.Errorf("a late write returns %v, want ErrLost", err)
						}
					}
				}))
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.writer != nil {
						w = c.writer(w)
					}
					locked.ServeHTTP(w, r)
				})
				w, aborted := serve(t, h, post(t.Context(), "/n"))
				if aborted != c.aborted {
					t.Errorf("aborted: %v, want %v", aborted, c.aborted)
				}
				if wantStatus(t, w, c.status, 0); !strings.Contains(w.Body.String(), c.body) || strings.Contains(w.Body.String(), "late") || c.body == "" && w.Body.Len() > 0 {
					t.Errorf("body %q, want %q", w.Body, c.body)
				}
				if c.status == 500 && (w.Header().Get("Etag") != "" || w.Header().Get("Content-Length") != "") {
					t.Errorf("the header of the handler is left: %v", w.Header())
				}
			})
		})
	}
}

// The client's end is not a loss: the handler can still write.
func TestCanceledIsNotLost(t *testing.T) {
	locks := newLocks(t, memstore.New())
	ctx, cancel := context.WithCancel(t.Context())
	h := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		ok.ServeHTTP(w, nil)
	}))
	w, aborted := serve(t, h, post(ctx, "/n"))
	if wantStatus(t, w, http.StatusOK, 0); w.Body.String() != "done" || aborted {
		t.Errorf("have %q, aborted %v", w.Body, aborted)
	}
}

// A client closed before its server should end the requests' work: running requests do not succeed,
// and waiting requests can be sent again.
func TestCloseBeforeShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, memstore.New())
		h := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			fmt.Fprint(w, "late")
		}))
		responses := make([]*httptest.ResponseRecorder, 2)
		for i := range responses {
			go func() { responses[i], _ = serve(t, h, post(t.Context(), "/n")) }()
			synctest.Wait()
		}
		locks.Close()
		synctest.Wait()
		wantStatus(t, responses[0], http.StatusInternalServerError, 0)
		wantStatus(t, responses[1], http.StatusServiceUnavailable, 5)
	})
}

// unreleased is a store on which a release fails.
type unreleased struct{ *memstore.Store }

func (unreleased) Release(context.Context, driver.ReleaseRequest) (bool, error) {
	return false, &driver.UnavailableError{Op: "release", Cause: io.ErrUnexpectedEOF}
}

// A failed release must not turn a success into an error.
func TestReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(unreleased{memstore.New()})
		defer locks.Close()
		w, aborted := serve(t, dibshttp.Lock(byPath(locks))(ok), post(t.Context(), "/n"))
		if wantStatus(t, w, http.StatusOK, 0); aborted {
			t.Error("aborted")
		}
		err := locks.Mutex("m").Do(t.Context(), func(context.Context) error { return nil })
		if e := dibshttp.FromError(err); e.Status != 500 || e.RetryAfter != 0 || e.Message == "" {
			t.Errorf("%v: have %+v, want 500 without Retry-After", err, e)
		}
	})
}

func TestNestedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locks := newLocks(t, store)
		twice := func(inner ...dibs.Option) http.Handler {
			return dibshttp.Lock(byPath(locks))(dibshttp.Lock(byPath(locks), dibshttp.With(inner...))(ok))
		}
		w, _ := serve(t, twice(), post(t.Context(), "/n"))
		wantStatus(t, w, http.StatusInternalServerError, 0) // ErrReentrant
		w, _ = serve(t, twice(dibs.Reentrant()), post(t.Context(), "/n"))
		wantStatus(t, w, http.StatusOK, 0)

		other := func(*http.Request) (dibs.Doer, error) { return locks.Mutex("other"), nil }
		outerLost := dibshttp.Lock(byPath(locks))(dibshttp.Lock(other)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if done, err := locks.Revoke(r.Context(), "/n", dibs.Holder{Fence: carried.FenceOf(r.Context(), "/n")}, ""); !done || err != nil {
				t.Errorf("revoke: %v, %v", done, err)
				return
			}
			<-r.Context().Done()
			fmt.Fprint(w, "late")
		})))
		w, _ = serve(t, outerLost, post(t.Context(), "/n"))
		wantStatus(t, w, http.StatusInternalServerError, 0)
		if !strings.Contains(w.Body.String(), "outcome unknown") {
			t.Errorf("body %q", w.Body)
		}
	})
}

// A long handler may let others go first; its request then gets a new lease.
func TestYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, memstore.New())
		served := ""
		h := dibshttp.Lock(byPath(locks))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			before := carried.Fence(r.Context())
			for range 3 {
				time.Sleep(time.Second) // of the bubble
				if err := carried.Yield(r.Context(), "/n"); err != nil {
					t.Error(err)
				}
			}
			served += fmt.Sprint("long:", carried.Fence(r.Context()) > before)
			ok.ServeHTTP(w, r)
		}))
		responses := make(chan int)
		go func() {
			w, _ := serve(t, h, post(t.Context(), "/n"))
			responses <- w.Code
		}()
		synctest.Wait()
		if err := locks.Mutex("/n").Do(t.Context(), func(context.Context) error { served += "short "; return nil }); err != nil {
			t.Error(err)
		}
		if code := <-responses; code != http.StatusOK || served != "short long:true" {
			t.Errorf("have status %d, served %q", code, served)
		}
	})
}

// idle is a lock that does not call the function.
type idle struct{}

func (idle) Do(context.Context, func(context.Context) error, ...dibs.Option) error { return nil }

func TestHandlerDoesNotRun(t *testing.T) {
	h := dibshttp.Lock(func(*http.Request) (dibs.Doer, error) { return idle{}, nil })(never(t))
	w, _ := serve(t, h, post(t.Context(), "/n"))
	wantStatus(t, w, http.StatusInternalServerError, 0)
	if e := dibshttp.FromError(nil); e != nil {
		t.Errorf("FromError(nil) is %v, want nil", e)
	}
}

func TestNilFunctions(t *testing.T) {
	for name, construct := range map[string]func(){
		"Lock":   func() { dibshttp.Lock(nil) },
		"Health": func() { dibshttp.Health(nil) },
	} {
		func() {
			defer func() {
				if p := recover(); p != "dibshttp: "+name+": nil function" {
					t.Errorf("%s: recovered %v", name, p)
				}
			}()
			construct()
		}()
	}
}
