package dibsgrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// A Rule is a method's lock. By and ByContext return rules. It is immutable.
type Rule struct {
	method     string
	lock       func(ctx context.Context, request proto.Message) (dibs.Doer, error)
	newRequest func() proto.Message // nil: the lock does not depend on the request
	options    []dibs.Option
}

// By returns a rule that finds the lock by the request. It is for methods to which the
// client sends one message: unary ones, and those that respond with a stream. The method is
// a constant that protoc-gen-go-grpc has generated, such as pb.Pay_Charge_FullMethodName.
//
// If lock returns nil and no error, the method runs without a lock. A nil pointer, such as a
// *dibs.Mutex that was never set, is Internal. An error of lock is InvalidArgument, unless it
// has a status. lock may be called concurrently. The options are those of each call of Do, so
// dibs.OwnerToken, which is for one call, is dibs.ErrInvalid.
//
// By panics if lock is nil, if R is an interface, or if the method is not
// "/package.Service/Method".
func By[R proto.Message](method string, lock func(ctx context.Context, request R) (dibs.Doer, error), options ...dibs.Option) Rule {
	rule := newRule("By", method, lock == nil, options)
	var none R // a typed nil pointer
	if any(none) == nil {
		panic("dibsgrpc: By: the request is an interface, want the type of a message, such as *pb.ChargeRequest")
	}
	rule.newRequest = func() proto.Message { return none.ProtoReflect().New().Interface() }
	rule.lock = func(ctx context.Context, request proto.Message) (dibs.Doer, error) {
		typed, ok := request.(R)
		if !ok {
			return nil, internal(fmt.Errorf("dibsgrpc: %s: the request is a %T, and the rule is for %T", method, request, typed))
		}
		return lock(ctx, typed)
	}
	return rule
}

// ByContext is By for a lock that does not depend on a message, but on the metadata or the peer in
// ctx. It fits all methods. Methods to which the client sends a stream are locked before the first
// message.
func ByContext(method string, lock func(ctx context.Context) (dibs.Doer, error), options ...dibs.Option) Rule {
	rule := newRule("ByContext", method, lock == nil, options)
	rule.lock = func(ctx context.Context, _ proto.Message) (dibs.Doer, error) { return lock(ctx) }
	return rule
}

func newRule(constructor, method string, nilFunction bool, options []dibs.Option) Rule {
	switch {
	case nilFunction:
		panic(fmt.Sprintf("dibsgrpc: %s: nil function", constructor))
	case !strings.HasPrefix(method, "/") || strings.Count(method, "/") != 2:
		panic(fmt.Sprintf("dibsgrpc: %s: method %q is not /package.Service/Method: use the generated constant", constructor, method))
	}
	return Rule{method: method, options: options}
}

// run runs a call's handler under its lock.
func (r Rule) run(ctx context.Context, request proto.Message, handler func(ctx context.Context) error) error {
	lock, err := r.lock(ctx, request)
	switch {
	case err != nil:
		return badRequest(err)
	case lock == nil:
		return handler(ctx)
	case driver.IsNil(lock): // a *dibs.Mutex that was never set: the method must not run without a lock
		return internal(fmt.Errorf("dibsgrpc: %s: the lock function returned a nil %T; return nil itself for no lock", r.method, lock))
	}
	var result error
	ran := false
	serve := func(ctx context.Context, _ Rule) error {
		ran = true
		result = handler(ctx)
		return nil
	}
	// Wrap rejects options that are for one call.
	err = dibs.Wrap(func(Rule) dibs.Doer { return lock }, serve, r.options...)(ctx, r)
	switch {
	case err == nil && !ran:
		return internal(fmt.Errorf("dibsgrpc: %s: Do of the lock returned nil without calling its function", r.method))
	case !ran || errors.Is(err, dibs.ErrLost):
		return FromError(errors.Join(err, result))
	}
	return result // also if the store did not confirm the release: the work is done
}
