package dibsotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsotel"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func TestSpanOfAnUncontendedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t)
		locks := newLocks(t, memstore.New(), r.observe(dibsotel.Config{}))
		ctx, caller := r.caller(t.Context())
		lease := must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(ctx))
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
		caller.End()
		s := r.only(t, "dibs.")
		want(t, "name", s.Name, "dibs.lock order:*")
		want(t, "attributes", text(s.Attributes), fmt.Sprintf("dibs.fence=%d dibs.kind=mutex dibs.name=order:42 dibs.result=acquired", lease.Fence()))
		want(t, "events", events(s), "")
		if s.SpanKind != trace.SpanKindInternal || s.Status.Code != codes.Unset || s.Parent.SpanID() != caller.SpanContext().SpanID() {
			t.Errorf("kind %v, status %v, parent %v", s.SpanKind, s.Status, s.Parent.SpanID())
		}
	})
}

func TestSpanOfACallThatQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t)
		store := memstore.New()
		first := must[*dibs.Lease](t)(newLocks(t, store).Mutex("order:42").Lock(t.Context()))
		locks := newLocks(t, store, r.observe(dibsotel.Config{}))
		done := make(chan *dibs.Lease)
		go func() { done <- must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(t.Context())) }()
		time.Sleep(3 * time.Second)
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		fence := (<-done).Fence()
		s := r.only(t, "dibs.lock")
		ticket := attributeOf(s, "dibs.ticket")
		want(t, "attributes", text(s.Attributes), fmt.Sprintf(
			"dibs.fence=%d dibs.kind=mutex dibs.name=order:42 dibs.notified=true dibs.position=1 dibs.result=notified dibs.ticket=%s dibs.waited=3", fence, ticket))
		want(t, "events", events(s), fmt.Sprintf("queued(dibs.position=1 dibs.ticket=%s) granted(dibs.fence=%d dibs.notified=true)", ticket, fence))
	})
}

func attributeOf(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return fmt.Sprint(a.Value.AsInterface())
		}
	}
	return ""
}

func TestSpansOfOtherKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t)
		locks := newLocks(t, memstore.New(), r.observe(dibsotel.Config{}))
		for name, c := range map[string]struct {
			lock dibs.Doer
			want string
		}{
			"api":     {locks.Semaphore("api", 5).Permits(1), "dibs.kind=semaphore dibs.limit=5 dibs.name=api dibs.result=acquired dibs.weight=1"},
			"a:1":     {locks.All([]string{"a:1", "b:2"}), `dibs.kind=multi dibs.more=[b:2] dibs.name=a:1 dibs.result=acquired`},
			"report:": {locks.RWMutex("report:").Reader(), "dibs.kind=reader dibs.name=report: dibs.result=acquired"},
		} {
			r.Reset()
			if err := c.lock.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			s := r.only(t, "dibs.")
			fence := "dibs.fence=" + attributeOf(s, "dibs.fence") + " "
			want(t, name, strings.Replace(text(s.Attributes), fence, "", 1), c.want)
		}
	})
}

// failing returns a store with a failing operation, unless err is nil.
func failing(operation string, err error) *servicetest.Faulty {
	store := servicetest.NewFaulty(memstore.New())
	store.Fail(err, operation)
	return store
}

// A forgetful store does not know a lease any more when it is released.
type forgetful struct{ *driver.Full }

func (forgetful) Release(context.Context, driver.ReleaseRequest) (bool, error) { return false, nil }

func TestStatusOfCallsWithoutALease(t *testing.T) {
	down := &driver.UnavailableError{Op: "acquire", Name: "order:42", Cause: errors.New("down\xff")}
	for what, c := range map[string]struct {
		acquire error
		call    func(ctx context.Context, m *dibs.Mutex) error
		result  string
		status  codes.Code
	}{
		"try": {nil, func(ctx context.Context, m *dibs.Mutex) error {
			_, err := m.TryLock(ctx)
			return err
		}, "busy", codes.Unset},
		"wait is over": {nil, func(ctx context.Context, m *dibs.Mutex) error {
			_, err := m.Lock(ctx, dibs.Wait(time.Second))
			return err
		}, "busy", codes.Error},
		"deadline": {nil, func(ctx context.Context, m *dibs.Mutex) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := m.Lock(ctx)
			return err
		}, "timeout", codes.Error},
		"cancelled": {nil, func(ctx context.Context, m *dibs.Mutex) error {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			_, err := m.Lock(ctx)
			return err
		}, "canceled", codes.Error},
		"cancelled before": {nil, func(ctx context.Context, m *dibs.Mutex) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := m.Lock(ctx)
			return err
		}, "canceled", codes.Error},
		"down": {down, func(ctx context.Context, m *dibs.Mutex) error {
			_, err := m.Lock(ctx)
			return err
		}, "unavailable", codes.Error},
		"down, try": {down, func(ctx context.Context, m *dibs.Mutex) error {
			_, err := m.TryLock(ctx)
			return err
		}, "unavailable", codes.Error},
	} {
		for _, hide := range []bool{false, true} {
			t.Run(fmt.Sprint(what, " hide=", hide), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRecorder(t)
					store := failing("acquire", c.acquire)
					must[*dibs.Lease](t)(newLocks(t, store.Store).Mutex("order:42").Lock(t.Context()))
					locks := newLocks(t, store, r.observe(dibsotel.Config{HideNames: hide}))
					err := c.call(t.Context(), locks.Mutex("order:42"))
					if err == nil {
						t.Fatal("there is a lease")
					}
					s := r.only(t, "dibs.")
					message, failure := "", ""
					if c.status == codes.Error {
						message, failure = c.result, c.result
						if !hide {
							message = strings.ToValidUTF8(err.Error(), "\uFFFD")
						}
					}
					want(t, "result", attributeOf(s, "dibs.result"), c.result)
					want(t, "error.type", attributeOf(s, "error.type"), failure)
					want(t, "message", s.Status.Description, message)
					if s.Status.Code != c.status {
						t.Errorf("status %v, want %v", s.Status, c.status)
					}
					if all := fmt.Sprint(s); hide && strings.Contains(all, "order:42") {
						t.Errorf("the name is in %s", all)
					}
				})
			})
		}
	}
}

func TestLostLease(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprint("held=", held), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder(t)
				store := failing("extend", &driver.UnavailableError{Op: "extend", Cause: errors.New("down")})
				locks := newLocks(t, store, r.observe(dibsotel.Config{HeldSpans: held}))
				lease := must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(t.Context(), dibs.TTL(3*time.Second)))
				time.Sleep(4 * time.Second)
				if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
					t.Fatal(err)
				}
				synctest.Wait()
				name := map[bool]string{false: "dibs.lost order:*", true: "dibs.held order:*"}[held]
				s, parent := r.only(t, name), r.only(t, "dibs.lock")
				if s.Parent.SpanID() != parent.SpanContext.SpanID() || s.Status.Code != codes.Error {
					t.Errorf("parent %v, status %v", s.Parent.SpanID(), s.Status)
				}
				want(t, "reason", attributeOf(s, "dibs.reason"), "expired")
				want(t, "type", attributeOf(s, "error.type"), "lost")
				failed := len(s.Events) > 0 && s.Events[0].Name == "renewal failed"
				if failed != held {
					t.Errorf("events %s", events(s))
				}
				if d := s.EndTime.Sub(s.StartTime); held && d < 2*time.Second || !held && d != 0 {
					t.Errorf("the span lasts %v", d)
				}
			})
		})
	}
}

func TestHeldSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t)
		locks := newLocks(t, memstore.New(), r.observe(dibsotel.Config{HeldSpans: true}))
		lease := must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(t.Context()))
		time.Sleep(time.Hour)
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
		s, parent := r.only(t, "dibs.held order:*"), r.only(t, "dibs.lock")
		if d := s.EndTime.Sub(s.StartTime); d != time.Hour || s.Parent.SpanID() != parent.SpanContext.SpanID() {
			t.Errorf("the span lasts %v, parent %v", d, s.Parent.SpanID())
		}
		want(t, "attributes", text(s.Attributes), fmt.Sprintf("dibs.fence=%d dibs.kind=mutex dibs.name=order:42", lease.Fence()))
	})
}

// Closing the Client ends leases, which must not be an error.
func TestLeaseEndedByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t)
		locks := dibs.New(memstore.New(), r.observe(dibsotel.Config{}))
		must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(t.Context()))
		if err := locks.Close(); err != nil {
			t.Fatal(err)
		}
		if s := r.only(t, "dibs.lost"); s.Status.Code != codes.Unset {
			t.Errorf("status %v", s.Status)
		}
	})
}

// An Unlock that notices a loss, or is not confirmed by the store, ends the span with an error.
func TestHeldSpanOfAFailedRelease(t *testing.T) {
	for result, store := range map[string]func() driver.Store{
		"lost": func() driver.Store { return forgetful{driver.Complete(memstore.New())} },
		"unavailable": func() driver.Store {
			return failing("release", &driver.UnavailableError{Op: "unlock", Cause: errors.New("down")})
		},
	} {
		t.Run(result, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder(t)
				observe, measured := measure(t, dibsotel.Config{TracerProvider: r.provider, HeldSpans: true})
				locks := newLocks(t, store(), observe)
				if err := must[*dibs.Lease](t)(locks.Mutex("order:42").Lock(t.Context())).Unlock(); err == nil {
					t.Fatal("no error of Unlock")
				}
				s := r.only(t, "dibs.held")
				want(t, "type", attributeOf(s, "error.type"), result)
				if s.Status.Code != codes.Error {
					t.Errorf("status %v", s.Status)
				}
				have := measured()
				if !strings.Contains(have, "dibs.end="+result) || strings.Contains(have, "dibs.lost") != (result == "lost") {
					t.Errorf("metrics\n%s", have)
				}
			})
		})
	}
}

// Hooks on two levels must have their own spans, the inner inside the outer.
func TestTwoHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder(t)
		locks := newLocks(t, memstore.New(), r.observe(dibsotel.Config{}))
		inner := r.hooks(dibsotel.Config{Class: func(string) string { return "inner" }, HeldSpans: true})
		inner.Renewed, inner.Degraded = nil, nil // they are for New only
		lease := must[*dibs.Lease](t)(locks.Mutex("order:42", dibs.Observe(inner)).Lock(t.Context()))
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
		r.only(t, "dibs.held inner")
		if s, outer := r.only(t, "dibs.lock inner"), r.only(t, "dibs.lock order:*"); s.Parent.SpanID() != outer.SpanContext.SpanID() {
			t.Errorf("parent %v, want %v", s.Parent.SpanID(), outer.SpanContext.SpanID())
		}
	})
}

// Many names should make few span names, and no token should be in a span.
func TestFewNamesAndNoTokens(t *testing.T) {
	r := newRecorder(t)
	locks := newLocks(t, memstore.New(), r.observe(dibsotel.Config{MaxClasses: 3, Class: func(name string) string { return name }, HeldSpans: true}))
	different := make(map[string]bool)
	for i := range 1000 {
		lease := must[*dibs.Lease](t)(locks.Mutex(fmt.Sprint("n", i)).Lock(t.Context(), dibs.Label("secret-label")))
		if err := lease.Unlock(); err != nil {
			t.Fatal(err)
		}
		for _, s := range r.GetSpans() {
			different[s.Name] = true
			if strings.Contains(fmt.Sprintf("%+v", s), string(lease.Token())) {
				t.Fatalf("the token is in %+v", s)
			}
		}
		r.Reset()
	}
	if n := len(different); n != 2*4 { // lock and held, for 3 classes and other
		t.Errorf("%d names of spans: %v", n, different)
	}
}
