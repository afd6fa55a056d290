package dibsotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/rueidisstore"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// onEachClient runs a test with each instrumented client of Redis. Each call of open makes
// a client, with a recorder of its spans, and of those of dibs.
func onEachClient(t *testing.T, test func(t *testing.T, s *redistest.Server, open func(options ...dibs.Option) (*dibs.Client, *recorder))) {
	for name, c := range map[string]struct {
		start func(t testing.TB, args ...string) *redistest.Server
		store func(t *testing.T, addr string, r *recorder) driver.Store
	}{
		"go-redis": {redistest.Start, func(t *testing.T, addr string, r *recorder) driver.Store {
			return instrumented(t, redis.NewClient(&redis.Options{Addr: addr}), r)
		}},
		"go-redis cluster": {redistest.StartClusterNode, func(t *testing.T, addr string, r *recorder) driver.Store {
			return instrumented(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}}), r)
		}},
		"rueidis":         {redistest.Start, instrumentedRueidis},
		"rueidis cluster": {redistest.StartClusterNode, instrumentedRueidis},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.start(t)
			test(t, s, func(options ...dibs.Option) (*dibs.Client, *recorder) {
				r := newRecorder(t)
				options = append(options, r.observe(dibsotel.Config{}))
				return newLocks(t, c.store(t, s.Addr(), r), options...), r
			})
		})
	}
}

func instrumented(t *testing.T, rdb redis.UniversalClient, r *recorder) driver.Store {
	t.Cleanup(func() { rdb.Close() })
	err := redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(r.provider), redisotel.WithDBStatement(false), redisotel.WithDialFilter(true))
	if err != nil {
		t.Fatal(err)
	}
	return goredisstore.New(rdb)
}

func instrumentedRueidis(t *testing.T, addr string, r *recorder) driver.Store {
	return rueidisstore.New(openRueidis(t, addr, r))
}

// scripts returns the spans of Redis that call scripts, one by one or in a pipeline.
func (r *recorder) scripts() tracetest.SpanStubs {
	return slices.DeleteFunc(r.GetSpans(), func(s tracetest.SpanStub) bool {
		return !strings.Contains(s.InstrumentationScope.Name, "redis") || !strings.Contains(strings.ToLower(s.Name), "eval") && !strings.Contains(strings.ToLower(s.Name), "script")
	})
}

// wantWhole checks that each script has a span of dibs as its parent, in the same trace. It
// returns the number of scripts.
func (r *recorder) wantWhole(t *testing.T) int {
	t.Helper()
	parents := make(map[trace.SpanID]tracetest.SpanStub)
	for _, s := range r.named("dibs.") {
		parents[s.SpanContext.SpanID()] = s
	}
	scripts := r.scripts()
	for _, s := range scripts {
		parent, found := parents[s.Parent.SpanID()]
		if !found || parent.SpanContext.TraceID() != s.SpanContext.TraceID() {
			t.Errorf("the span %q has the parent %v, which is no span of dibs in its trace", s.Name, s.Parent.SpanID())
		}
	}
	return len(scripts)
}

// wantTraces waits until there are at least some spans of scripts. It checks how many traces
// all spans of dibs and of scripts form.
func (r *recorder) wantTraces(t *testing.T, traces, atLeast int) {
	t.Helper()
	eventually(t, func() bool { return len(r.scripts()) >= atLeast })
	r.wantWhole(t)
	different := make(map[trace.TraceID]bool)
	for _, s := range append(r.named("dibs."), r.scripts()...) {
		different[s.SpanContext.TraceID()] = true
	}
	if len(different) != traces {
		t.Errorf("%d traces, want %d, of %v", len(different), traces, names(r.GetSpans()))
	}
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) { // between polls
		if time.Now().After(limit) {
			t.Fatal("not within 10 s")
		}
	}
}

func TestTraceOfAnUncontendedLock(t *testing.T) {
	onEachClient(t, func(t *testing.T, _ *redistest.Server, open func(...dibs.Option) (*dibs.Client, *recorder)) {
		locks, r := open()
		for range 40 { // from the 16th on, the caller sends its own requests
			r.Reset()
			lease := must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(t.Context()))
			if err := lease.Unlock(); err != nil {
				t.Fatal(err)
			}
			r.wantTraces(t, 1, 2) // acquire and release
		}
	})
}

// The span of the caller is the root.
func TestTraceOfACaller(t *testing.T) {
	onEachClient(t, func(t *testing.T, _ *redistest.Server, open func(...dibs.Option) (*dibs.Client, *recorder)) {
		locks, r := open()
		ctx, caller := r.caller(t.Context())
		for range 3 {
			if err := locks.Mutex("order:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		r.wantTraces(t, 1, 6)
		for _, s := range append(r.named("dibs."), r.scripts()...) {
			if s.SpanContext.TraceID() != caller.SpanContext().TraceID() {
				t.Errorf("the span %q is not in the trace of the caller", s.Name)
			}
		}
	})
}

func TestTraceOfAWaiter(t *testing.T) {
	onEachClient(t, func(t *testing.T, _ *redistest.Server, open func(...dibs.Option) (*dibs.Client, *recorder)) {
		first, _ := open()
		queued := make(chan struct{}, 1)
		locks, r := open(dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { queued <- struct{}{} }}))
		held := must[*dibs.Lease](t)(first.Mutex("order:42").Lock(t.Context()))
		done := make(chan error, 1)
		go func() {
			done <- locks.Mutex("order:42").Do(t.Context(), func(context.Context) error { return nil })
		}()
		<-queued
		if err := held.Unlock(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		r.wantTraces(t, 1, 2)
		if s := r.only(t, "dibs.lock"); len(s.Events) != 2 {
			t.Errorf("events %s, want queued and granted", events(s))
		}
	})
}

// A waiter behind a lock of another library polls.
func TestTraceOfAPoll(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *redistest.Server, open func(...dibs.Option) (*dibs.Client, *recorder)) {
		locks, r := open()
		s.MustCmd(t, "SET", "lock:order:42", "foreign", "PX", "700")
		if err := locks.Mutex("order:42").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		r.wantTraces(t, 1, 4) // several acquires, and a release
	})
}

// A call that gives up leaves the queue in the background.
func TestTraceOfACancel(t *testing.T) {
	onEachClient(t, func(t *testing.T, s *redistest.Server, open func(...dibs.Option) (*dibs.Client, *recorder)) {
		first, _ := open()
		locks, r := open()
		must[*dibs.Lease](t)(first.Mutex("order:42").Lock(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waiting := dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { cancel() }})
		if _, err := locks.Mutex("order:42").Lock(ctx, waiting); !errors.Is(err, dibs.ErrBusy) {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			state, err := first.Inspect(t.Context(), "order:42")
			return err == nil && state.Waiting == 0
		})
		r.wantTraces(t, 1, 2) // acquire and cancel
	})
}

// Concurrent calls share exchanges with Redis. The span of such an exchange is in the trace
// of one of the calls.
func TestTracesUnderLoad(t *testing.T) {
	const callers, each = 64, 30
	onEachClient(t, func(t *testing.T, _ *redistest.Server, open func(...dibs.Option) (*dibs.Client, *recorder)) {
		locks, r := open()
		var all sync.WaitGroup
		roots := make([]trace.TraceID, callers)
		for i := range callers {
			all.Go(func() {
				ctx, caller := r.caller(t.Context())
				defer caller.End()
				roots[i] = caller.SpanContext().TraceID()
				for j := range each {
					name := fmt.Sprintf("{order}:%d", (i+j)%48) // in one slot; some are contended
					if err := locks.Mutex(name).Do(ctx, func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		scripts := r.wantWhole(t)
		calls := r.named("dibs.lock")
		shares := !strings.Contains(t.Name(), "cluster") // rueidis sends one command at a time there
		if len(calls) != callers*each || scripts == 0 || shares && scripts >= 2*len(calls) {
			t.Errorf("%d scripts of %d calls, want shared ones", scripts, len(calls))
		}
		for _, s := range append(calls, r.scripts()...) {
			if !slices.Contains(roots, s.SpanContext.TraceID()) {
				t.Errorf("the span %q is in no caller's trace", s.Name)
			}
		}
	})
}

// A renewal concerns many leases, and belongs to no call. Its spans are roots.
func TestRenewalsAreRoots(t *testing.T) {
	onEachClient(t, func(t *testing.T, _ *redistest.Server, open func(...dibs.Option) (*dibs.Client, *recorder)) {
		renewed := make(chan struct{}, 1)
		locks, r := open(dibs.Observe(dibs.Hooks{Renewed: func(dibs.Renewed) {
			select {
			case renewed <- struct{}{}:
			default:
			}
		}}))
		ctx, caller := r.caller(t.Context())
		must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(ctx, dibs.TTL(time.Second)))
		eventually(t, func() bool { return len(r.scripts()) > 0 })
		before := len(r.scripts())
		<-renewed
		scripts := r.scripts()
		if len(scripts) == before {
			t.Fatal("no span of the renewal")
		}
		for _, s := range scripts[before:] {
			if s.Parent.IsValid() || s.SpanContext.TraceID() == caller.SpanContext().TraceID() {
				t.Errorf("the span %q of a renewal has a parent", s.Name)
			}
		}
	})
}
