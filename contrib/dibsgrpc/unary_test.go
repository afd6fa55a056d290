package dibsgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgrpc"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

const method = pb.TestService_UnaryCall_FullMethodName

// call calls a rule's interceptor, without a server, so that it can be in a bubble.
func call(ctx context.Context, rule dibsgrpc.Rule, message any, handler grpc.UnaryHandler) (any, error) {
	return dibsgrpc.Unary(rule)(ctx, message, &grpc.UnaryServerInfo{FullMethod: method}, handler)
}

// by is a rule with a single lock.
func by(lock dibs.Doer, options ...dibs.Option) dibsgrpc.Rule {
	return dibsgrpc.ByContext(method, func(context.Context) (dibs.Doer, error) { return lock, nil }, options...)
}

// done is a handler that must not fail.
func done(context.Context, any) (any, error) { return "done", nil }

// never is a handler that should not run.
func never(t *testing.T) grpc.UnaryHandler {
	return func(context.Context, any) (any, error) { t.Error("the handler runs"); return nil, nil }
}

func TestHandlerHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := newLocks(t, memstore.New())
		response, err := call(t.Context(), rules(locks)[0], request("order:7"), func(ctx context.Context, message any) (any, error) {
			if _, err := locks.Mutex("order:7").TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("a second lock during the handler: %v, want ErrBusy", err)
			}
			if carried.Fence(ctx) == 0 {
				t.Error("the context has no fence")
			}
			return message, nil
		})
		if r, ok := response.(*pb.SimpleRequest); err != nil || !ok || string(r.Payload.Body) != "order:7" {
			t.Errorf("have %v, %v", response, err)
		}
		servicetest.WantFree(t, locks, "order:7")
	})
}

func TestNoLock(t *testing.T) {
	locks := newLocks(t, memstore.New())
	noLease := func(ctx context.Context, _ any) (any, error) {
		if carried.Fence(ctx) != 0 {
			t.Error("the context has a lease")
		}
		return "done", nil
	}
	other := dibsgrpc.ByContext("/a.B/C", func(context.Context) (dibs.Doer, error) { return locks.Mutex("n"), nil })
	for name, rule := range map[string]dibsgrpc.Rule{"nil": by(nil), "another method": other} {
		if response, err := call(t.Context(), rule, request("n"), noLease); response != "done" || err != nil {
			t.Errorf("%s: have %v, %v", name, response, err)
		}
	}
}

// busyFor is a held lock.
type busyFor dibs.BusyError

func (b busyFor) Do(context.Context, func(context.Context) error, ...dibs.Option) error {
	busy := dibs.BusyError(b)
	return fmt.Errorf("wrapped: %w", &busy)
}

// failing is a store whose operations fail.
type failing struct {
	*driver.Full
	err error
}

func (s failing) Acquire(context.Context, driver.AcquireRequest) (driver.AcquireReply, error) {
	return driver.AcquireReply{}, s.err
}

// Each error that keeps the handler from running should have a code. No status should contain a
// token, a host or a name, even if another interceptor wraps it.
func TestCodeOfEachError(t *testing.T) {
	const secret = "web-7:211:secret"
	held := func(remaining time.Duration, ahead int) func(*dibs.Client) dibs.Doer {
		return func(*dibs.Client) dibs.Doer {
			return busyFor{Name: secret, Holder: secret, Remaining: max(remaining, 0), NeverExpires: remaining < 0, Ahead: ahead}
		}
	}
	outage := &driver.UnavailableError{Op: "acquire", Name: secret, Cause: context.DeadlineExceeded} // the operation's
	cases := []struct {
		name  string
		store driver.Store
		lock  func(locks *dibs.Client) dibs.Doer
		close bool
		err   error // from the lock function
		code  codes.Code
		retry time.Duration
		is    error
	}{
		{name: "busy", lock: held(2500*time.Millisecond, 0), code: codes.Aborted, retry: 2500 * time.Millisecond, is: dibs.ErrBusy},
		{name: "queue", lock: held(time.Second, 3), code: codes.Aborted, retry: 4 * time.Second, is: dibs.ErrBusy},
		{name: "long queue", lock: held(time.Second, 1<<40), code: codes.Aborted, retry: 31 * time.Second, is: dibs.ErrBusy},
		{name: "unknown", lock: held(0, 0), code: codes.Aborted, retry: 100 * time.Millisecond, is: dibs.ErrBusy},
		{name: "never expires", lock: held(-1, 0), code: codes.Aborted, retry: 30 * time.Second, is: dibs.ErrBusy},
		{name: "outage", store: failing{driver.Complete(memstore.New()), outage}, code: codes.Unavailable, retry: 5 * time.Second, is: dibs.ErrUnavailable},
		{name: "closed", close: true, code: codes.Unavailable, retry: 5 * time.Second, is: dibs.ErrClosed},
		{name: "long name", lock: func(l *dibs.Client) dibs.Doer { return l.Mutex(strings.Repeat(secret, 99)) }, code: codes.InvalidArgument, is: dibs.ErrInvalid},
		{name: "empty name", lock: func(l *dibs.Client) dibs.Doer { return l.Mutex("") }, code: codes.InvalidArgument, is: dibs.ErrInvalid},
		{name: "wrong type", store: failing{driver.Complete(memstore.New()), driver.ErrWrongType}, code: codes.Internal, is: dibs.ErrWrongType},
		{name: "lock function", err: io.ErrUnexpectedEOF, code: codes.InvalidArgument, is: io.ErrUnexpectedEOF},
		{name: "own status", err: status.Error(codes.PermissionDenied, "not yours"), code: codes.PermissionDenied},
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
				rule := dibsgrpc.By(method, func(context.Context, *pb.SimpleRequest) (dibs.Doer, error) {
					if c.err != nil || c.lock == nil {
						return locks.Mutex("n"), c.err
					}
					return c.lock(locks), nil
				})
				_, err := call(t.Context(), rule, request("n"), never(t))
				wantCode(t, err, c.code, c.retry)
				if c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("have %v, want %v", err, c.is)
				}
				if message := status.Convert(fmt.Errorf("wrapped: %w", err)).Message(); strings.Contains(message, "web-7") {
					t.Errorf("message %q", message)
				}
			})
		})
	}
}

// One owner token for all calls would let them run at the same time.
func TestOwnerTokenIsRejected(t *testing.T) {
	locks := newLocks(t, memstore.New())
	rule := dibsgrpc.By(method, func(context.Context, *pb.SimpleRequest) (dibs.Doer, error) { return locks.Mutex("n"), nil }, dibs.OwnerToken("request-1"))
	_, err := call(t.Context(), rule, request("n"), never(t))
	if !errors.Is(err, dibs.ErrInvalid) {
		t.Errorf("have %v, want ErrInvalid", err)
	}
}

// A nil pointer is no permission to run without a lock.
func TestNilPointer(t *testing.T) {
	var mutex *dibs.Mutex
	_, err := call(t.Context(), by(mutex), request("n"), never(t))
	wantCode(t, err, codes.Internal, 0)
}

func TestWrongRequest(t *testing.T) {
	locks := newLocks(t, memstore.New())
	rule := rules(locks)[0]
	for _, message := range []any{&pb.Empty{}, "text", nil} {
		_, err := call(t.Context(), rule, message, never(t))
		if wantCode(t, err, codes.Internal, 0); !strings.Contains(fmt.Sprint(errors.Unwrap(err)), "the rule is for *grpc_testing.SimpleRequest") {
			t.Errorf("%T: have %v", message, errors.Unwrap(err))
		}
	}
}

// The caller's deadline should bound the wait, and leave nothing behind.
func TestDeadlineBoundsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		holder, locks := newLocks(t, store), newLocks(t, store)
		lease, err := holder.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err = call(ctx, by(locks.Mutex("n")), nil, never(t))
		if wantCode(t, err, codes.DeadlineExceeded, 0); time.Since(begin) != 3*time.Second || !errors.Is(err, dibs.ErrBusy) {
			t.Errorf("%v after %v, want 3s", err, time.Since(begin))
		}
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = call(canceled, by(locks.Mutex("n")), nil, never(t))
		wantCode(t, err, codes.Canceled, 0)
		_, err = call(canceled, by(locks.Mutex("n")), nil, never(t)) // nothing is sent
		wantCode(t, err, codes.Canceled, 0)
		begin = time.Now()
		_, err = call(t.Context(), by(locks.Mutex("n"), dibs.Wait(2*time.Second)), nil, never(t))
		if status.Code(err) != codes.Aborted || time.Since(begin) != 2*time.Second {
			t.Errorf("have %v after %v, want Aborted after 2s", err, time.Since(begin))
		}
		lease.Unlock()
		synctest.Wait()
		servicetest.WantFree(t, locks, "n")
	})
}

// A handler that loses its lease should return neither success nor a code that permits a retry.
func TestLost(t *testing.T) {
	for name, returned := range map[string]error{
		"success":     nil,
		"unavailable": status.Error(codes.Unavailable, "the database"),
		"canceled":    context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locks := newLocks(t, store)
				response, err := call(t.Context(), by(locks.Mutex("n")), nil, func(ctx context.Context, _ any) (any, error) {
					store.LoseData()
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, dibs.ErrLost) {
						t.Errorf("the context ends with %v, want ErrLost", cause)
					}
					return "late", returned
				})
				if wantCode(t, err, codes.Internal, 0); response != nil || !errors.Is(err, dibs.ErrLost) || !errors.Is(err, returned) && returned != nil {
					t.Errorf("have %v, %v", response, errors.Unwrap(err))
				}
			})
		})
	}
}

func TestErrorOfTheHandler(t *testing.T) {
	locks := newLocks(t, memstore.New())
	want := status.Error(codes.NotFound, "no such order")
	response, err := call(t.Context(), by(locks.Mutex("n")), nil, func(context.Context, any) (any, error) { return nil, want })
	if response != nil || err != want { //nolint:errorlint // the same error, not a wrapped error
		t.Errorf("have %v, %v", response, err)
	}
	servicetest.WantFree(t, locks, "n")
}

func TestPanicPassesThrough(t *testing.T) {
	locks := newLocks(t, memstore.New())
	func() {
		defer func() {
			if p := recover(); p != "bug" {
				t.Errorf("recovered %v, want bug", p)
			}
		}()
		_, _ = call(t.Context(), by(locks.Mutex("n")), nil, func(context.Context, any) (any, error) { panic("bug") })
	}()
	servicetest.WantFree(t, locks, "n")
}

// unreleased is a store on which a release fails.
type unreleased struct{ *memstore.Store }

func (unreleased) Release(context.Context, driver.ReleaseRequest) (bool, error) {
	return false, &driver.UnavailableError{Op: "release", Cause: io.ErrUnexpectedEOF}
}

// A failed release does not turn a success into an error.
func TestReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(unreleased{memstore.New()})
		defer locks.Close()
		if response, err := call(t.Context(), by(locks.Mutex("n")), nil, done); response != "done" || err != nil {
			t.Errorf("have %v, %v", response, err)
		}
		err := locks.Mutex("m").Do(t.Context(), func(context.Context) error { return nil })
		wantCode(t, dibsgrpc.FromError(err), codes.Internal, 0)
	})
}

// A lock that the function itself finds busy is no Aborted after it ran.
func TestBusyInTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := dibs.New(memstore.New())
		defer locks.Close()
		inner := locks.Mutex("inner", dibs.Wait(0))
		lease, err := inner.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer lease.Unlock()
		nothing := func(context.Context) error { return nil }
		err = locks.Mutex("order").Do(t.Context(), func(ctx context.Context) error { return inner.Do(ctx, nothing) })
		wantCode(t, dibsgrpc.FromError(err), codes.Internal, 0)
		own := status.Error(codes.FailedPrecondition, "no funds")
		err = locks.Mutex("order").Do(t.Context(), func(context.Context) error { return own })
		wantCode(t, dibsgrpc.FromError(err), codes.FailedPrecondition, 0)
	})
}

// idle is a lock that does not call the function.
type idle struct{}

func (idle) Do(context.Context, func(context.Context) error, ...dibs.Option) error { return nil }

func TestHandlerDoesNotRun(t *testing.T) {
	_, err := call(t.Context(), by(idle{}), nil, never(t))
	wantCode(t, err, codes.Internal, 0)
	if err := dibsgrpc.FromError(nil); err != nil {
		t.Errorf("FromError(nil) is %v, want nil", err)
	}
}

func TestBadRules(t *testing.T) {
	fn := func(context.Context) (dibs.Doer, error) { return nil, nil }
	for want, construct := range map[string]func(){
		"By: nil function":        func() { dibsgrpc.By[*pb.Empty](method, nil) },
		"ByContext: nil function": func() { dibsgrpc.ByContext(method, nil) },
		`"Charge" is not`:         func() { dibsgrpc.ByContext("Charge", fn) },
		`"/shop.Pay" is not`:      func() { dibsgrpc.ByContext("/shop.Pay", fn) },
		"two rules for":           func() { dibsgrpc.Options(dibsgrpc.ByContext(method, fn), dibsgrpc.ByContext(method, fn)) },
		"is an interface": func() {
			dibsgrpc.By(method, func(context.Context, proto.Message) (dibs.Doer, error) { return nil, nil })
		},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "dibsgrpc: ") || !strings.Contains(p, want) {
					t.Errorf("recovered %q, want %q", p, want)
				}
			}()
			construct()
		}()
	}
}
