package dibsotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/redistest"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// background contains the spans that belong to no call: from the subscription and its check, the
// search for a cluster's nodes, and new connections.
var background = []string{"subscribe", "pubsub", "cluster", "command", "config", "client", "hello", "ping", "redis.dial"}

// A tree contains the spans by their ids.
type tree map[trace.SpanID]tracetest.SpanStub

func (r *recorder) tree() tree {
	all := make(tree)
	for _, s := range r.GetSpans() {
		all[s.SpanContext.SpanID()] = s
	}
	return all
}

// under reports whether a span has an ancestor in its trace whose name begins with a prefix.
func (all tree) under(s tracetest.SpanStub, prefix string) bool {
	for {
		parent, found := all[s.Parent.SpanID()]
		switch {
		case !found || parent.SpanContext.TraceID() != s.SpanContext.TraceID():
			return false
		case strings.HasPrefix(parent.Name, prefix):
			return true
		}
		s = parent
	}
}

// commands returns the spans for commands that dibs sends during a call, and for cancels and
// retries in the background.
func (r *recorder) commands() (all tracetest.SpanStubs) {
	spans := r.tree()
	for _, s := range r.GetSpans() {
		command := strings.TrimPrefix(strings.ToLower(s.Name), "redis.pipeline ")
		isBackground := slices.ContainsFunc(background, func(name string) bool { return strings.HasPrefix(command, name) })
		if strings.Contains(s.InstrumentationScope.Name, "redis") && !isBackground && !spans.under(s, "renewal") {
			all = append(all, s)
		}
	}
	return all
}

// orphans returns the commands without a dibs span as an ancestor.
func (r *recorder) orphans() []string {
	spans := r.tree()
	return names(slices.DeleteFunc(r.commands(), func(s tracetest.SpanStub) bool { return spans.under(s, "dibs.") }))
}

// wantWhole checks that each command has a dibs span as an ancestor, in the same trace.
func (r *recorder) wantWhole(t *testing.T) {
	t.Helper()
	// A parent may end, and be recorded, shortly after its child.
	if !within(func() bool { return len(r.orphans()) == 0 }) {
		t.Errorf("commands without a span of dibs above them: %v", r.orphans())
	}
}

// traces returns the traces with dibs spans and commands.
func (r *recorder) traces() map[trace.TraceID]bool {
	different := make(map[trace.TraceID]bool)
	for _, s := range append(r.named("dibs."), r.commands()...) {
		different[s.SpanContext.TraceID()] = true
	}
	return different
}

// wantTraces waits for some commands, and checks how many traces they form with dibs.
func (r *recorder) wantTraces(t *testing.T, traces, atLeast int) {
	t.Helper()
	eventually(t, func() bool { return len(r.commands()) >= atLeast })
	r.wantWhole(t)
	if n := len(r.traces()); n != traces {
		t.Errorf("%d traces, want %d, of %v", n, traces, names(r.GetSpans()))
	}
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	if !within(done) {
		t.Fatal("not within 10 s")
	}
}

func within(done func() bool) bool {
	for limit := time.Now().Add(10 * time.Second); !done(); time.Sleep(time.Millisecond) { // between polls
		if time.Now().After(limit) {
			return false
		}
	}
	return true
}

func nothing(context.Context) error { return nil }

// Each trace test runs on all topologies, with all clients.
func TestTraces(t *testing.T) {
	onEachTopology(t, func(t *testing.T, b bed) {
		for _, c := range []struct {
			name string
			test func(*testing.T, bed)
		}{
			{"uncontended", traceOfAnUncontendedLock},
			{"caller", traceOfACaller},
			{"waiter", traceOfAWaiter},
			{"poll", traceOfAPoll},
			{"cancel", traceOfACancel},
			{"wanted", traceOfWanted},
			{"yield", traceOfAYield},
			{"several names", traceOfSeveralNames},
			{"renewal", renewalsAreRoots},
			{"load", tracesUnderLoad},
		} {
			t.Run(c.name, func(t *testing.T) { c.test(t, b) })
		}
	})
}

func traceOfAnUncontendedLock(t *testing.T, b bed) {
	const calls = 40 // from the 16th on, the caller sends its own requests
	locks, r := b.open(t)
	for range calls {
		lease := must[*dibs.Lease](t)(locks.Mutex("uncontended:42").Lock(t.Context()))
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	r.wantTraces(t, calls, 2*calls) // acquire and release
}

// The caller's span is the root.
func traceOfACaller(t *testing.T, b bed) {
	locks, r := b.open(t)
	ctx, caller := r.caller(t.Context())
	for range 3 {
		if err := locks.Mutex("caller:42").Do(ctx, nothing); err != nil {
			t.Fatal(err)
		}
	}
	r.wantTraces(t, 1, 6)
	if !r.traces()[caller.SpanContext().TraceID()] {
		t.Error("the trace is not that of the caller")
	}
}

func traceOfAWaiter(t *testing.T, b bed) {
	first, _ := b.open(t)
	queued := make(chan struct{}, 1)
	locks, r := b.open(t, dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { queued <- struct{}{} }}))
	held := must[*dibs.Lease](t)(first.Mutex("waiter:42").Lock(t.Context()))
	done := make(chan error, 1)
	go func() { done <- locks.Mutex("waiter:42").Do(t.Context(), nothing) }()
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
}

// A waiter behind another library's lock polls.
func traceOfAPoll(t *testing.T, b bed) {
	if len(b.servers.masters) == 0 {
		t.Skip("which node has the name is not known here")
	}
	locks, r := b.open(t)
	for _, s := range b.servers.masters {
		s.MustCmd(t, "SET", b.prefix+"poll:42", "foreign", "PX", "700")
	}
	if err := locks.Mutex("poll:42").Do(t.Context(), nothing); err != nil {
		t.Fatal(err)
	}
	r.wantTraces(t, 1, 4) // several acquires, and a release
}

// A call that gives up leaves the queue in the background. If a heartbeat was in flight, the
// cancel continues until it can no longer arrive, up to half a Timeout later.
func traceOfACancel(t *testing.T, b bed) {
	first, _ := b.open(t)
	locks, r := b.open(t, dibs.Timeout(5*time.Second))
	must[*dibs.Lease](t)(first.Mutex("cancel:42").Lock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { cancel() }})
	if _, err := locks.Mutex("cancel:42").Lock(ctx, waiting); !errors.Is(err, dibs.ErrBusy) {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		state, err := first.Inspect(t.Context(), "cancel:42")
		return err == nil && state.Waiting == 0
	})
	r.wantTraces(t, 1, 2) // acquire and cancel
}

// The request for a notification should belong to the call that acquired the lease.
func traceOfWanted(t *testing.T, b bed) {
	other, _ := b.open(t)
	locks, r := b.open(t)
	lease := must[*dibs.Lease](t)(locks.Mutex("wanted:42").Lock(t.Context()))
	eventually(t, func() bool { return len(r.commands()) > 0 })
	before := len(r.commands())
	wanted := lease.Wanted()
	eventually(t, func() bool { return len(r.commands()) > before })
	done := make(chan error, 1)
	go func() { done <- other.Mutex("wanted:42").Do(t.Context(), nothing) }()
	<-wanted
	if err := lease.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.wantTraces(t, 1, 3) // acquire, the request, and release
}

// A Yield releases, and is a call of its own, with the span of the caller.
func traceOfAYield(t *testing.T, b bed) {
	other, _ := b.open(t)
	locks, r := b.open(t)
	ctx, caller := r.caller(t.Context())
	queued := make(chan struct{}, 1)
	waits := dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { queued <- struct{}{} }})
	done := make(chan error, 1)
	err := locks.Mutex("yield:42").Do(ctx, func(ctx context.Context) error {
		go func() { done <- other.Mutex("yield:42").Do(t.Context(), nothing, waits) }()
		<-queued
		return carried.Yield(ctx, "yield:42")
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	caller.End()
	r.wantTraces(t, 1, 5) // acquire, the request for a notification, release, acquire, release
	if n := len(r.named("dibs.lock")); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// Several names are several requests on a cluster and on a quorum.
func traceOfSeveralNames(t *testing.T, b bed) {
	first, _ := b.open(t)
	queued := make(chan struct{}, 3)
	locks, r := b.open(t, dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { queued <- struct{}{} }}))
	held := must[*dibs.Lease](t)(first.Mutex("several:2").Lock(t.Context()))
	done := make(chan error, 1)
	go func() { done <- locks.All([]string{"several:1", "several:2", "several:3"}).Do(t.Context(), nothing) }()
	<-queued
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.wantTraces(t, 1, 2)
}

// A renewal concerns many leases, and belongs to no call.
func renewalsAreRoots(t *testing.T, b bed) {
	renewed := make(chan struct{}, 1)
	locks, r := b.open(t, dibs.Observe(dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) {
		select {
		case renewed <- struct{}{}:
		default:
		}
	}}))
	ctx, caller := r.caller(t.Context())
	lease := must[*dibs.Lease](t)(locks.Mutex("renewal:42").Lock(ctx, dibs.TTL(3*time.Second)))
	select {
	case <-renewed:
	case <-lease.Context().Done():
		t.Skip("the machine is too busy for a renewal within 2 s: ", lease.Err())
	}
	eventually(t, func() bool { return len(r.named("renewal")) > 0 })
	spans := r.tree()
	for _, s := range r.named("renewal") {
		if s.Parent.IsValid() {
			t.Errorf("the renewal has the parent %v", s.Parent.SpanID())
		}
	}
	found := 0
	for _, s := range spans {
		if spans.under(s, "renewal") {
			found++
			if s.SpanContext.TraceID() == caller.SpanContext().TraceID() {
				t.Errorf("the span %q of a renewal is in the trace of a call", s.Name)
			}
		}
	}
	if found == 0 {
		t.Error("no command of a renewal")
	}
	r.wantWhole(t)
}

// Many calls of all kinds at once: they wait, give up, and share requests, while leases are
// renewed.
func tracesUnderLoad(t *testing.T, b bed) {
	const callers, rounds = 48, 8
	var queued, notified atomic.Int32
	locks, r := b.open(t, dibs.Observe(dibs.Hooks{
		Queued: func(context.Context, dibs.Queued) { queued.Add(1) },
		AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) {
			if e.Notified {
				notified.Add(1)
			}
		},
	}))
	must[*dibs.Lease](t)(locks.Mutex("renewed:").Lock(t.Context()))
	for i := range 100 { // leases to renew soon; on a busy machine a few may expire
		_, err := locks.Mutex(fmt.Sprint("renewed:", i)).Lock(t.Context(), dibs.TTL(2*time.Second))
		if err != nil && !errors.Is(err, dibs.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	roots := make([]trace.TraceID, callers)
	for i := range callers {
		all.Go(func() {
			ctx, caller := r.caller(t.Context())
			defer caller.End()
			roots[i] = caller.SpanContext().TraceID()
			for j := range rounds {
				err := callOfLoad(ctx, locks, i+j)
				if err != nil && !errors.Is(err, dibs.ErrBusy) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	eventually(t, func() bool { return len(r.named("renewal")) > 0 })
	if err := locks.Close(); err != nil { // waits for the commands in the background
		t.Fatal(err)
	}
	r.wantWhole(t)
	if queued.Load() == 0 || notified.Load() == 0 && !slices.Contains([]string{"replicas", "cluster with replicas", "sentinel with replicas"}, b.topology) {
		t.Errorf("%d calls queued, %d notified, want some", queued.Load(), notified.Load())
	}
	commands, calls := len(r.commands()), len(r.named("dibs.lock"))
	if b.topology == "server" && commands >= 2*calls {
		t.Errorf("%d commands of %d calls, want shared ones", commands, calls)
	}
}

// callOfLoad makes the n-th call in a mixture.
func callOfLoad(ctx context.Context, locks *dibs.Client, n int) error {
	name := fmt.Sprint("load:", n%4)
	switch n % 6 {
	case 0:
		return locks.RWMutex(name).Reader().Do(ctx, nothing)
	case 1:
		return locks.RWMutex(name).Writer().Do(ctx, nothing)
	case 2:
		return locks.All([]string{name, fmt.Sprint("load:", n%5+4)}).Do(ctx, nothing)
	case 3: // gives up
		ctx, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
		defer cancel()
		if err := locks.Mutex(name).Do(ctx, nothing); ctx.Err() == nil {
			return err
		}
		return nil
	default:
		return locks.Mutex(name).Do(ctx, nothing)
	}
}

// Calls whose master dies send probes, and retries until the next master serves.
func TestTraceOfAFailover(t *testing.T) {
	for client, open := range clients {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinels(t, 1, 3)
			b := bed{"sentinel", servers{}, "", func(t *testing.T, r *recorder) driver.Store {
				return open(t, servers{master: s.MasterName}, s.Addrs(), r, nil)
			}}
			locks, r := b.open(t, dibs.Timeout(3*time.Second)) // calls may fail here
			var killed, served atomic.Bool
			ends := time.Now().Add(time.Minute)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					for !served.Load() && time.Now().Before(ends) {
						began := killed.Load()
						lease, err := locks.Mutex(fmt.Sprint("failover:", i%4)).Lock(t.Context())
						if err != nil {
							continue
						}
						if began {
							served.Store(true)
						}
						_ = lease.Unlock() // its master may die
					}
				})
			}
			if _, err := s.KillMaster(); err != nil {
				t.Error(err)
			}
			killed.Store(true)
			all.Wait()
			if !served.Load() {
				t.Error("no call is served after the death of the master")
			}
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
			r.wantWhole(t)
		})
	}
}
