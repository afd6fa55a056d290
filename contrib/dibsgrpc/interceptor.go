package dibsgrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Options returns the server options that run unary methods and streams under the rules' locks.
// They are chained with other options' interceptors, in the options' order. It panics if two rules
// are for the same method.
func Options(rules ...Rule) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(Unary(rules...)), grpc.ChainStreamInterceptor(Stream(rules...))}
}

// Unary returns an interceptor for unary methods only, which ignores rules for others. Prefer
// Options. It panics if two rules are for the same method.
func Unary(rules ...Rule) grpc.UnaryServerInterceptor {
	byMethod := index(rules)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		rule, ok := byMethod[info.FullMethod]
		if !ok {
			return handler(ctx, request)
		}
		message, _ := request.(proto.Message) // By reports another type
		err = rule.run(ctx, message, func(ctx context.Context) (err error) {
			response, err = handler(ctx, request)
			return err
		})
		if err != nil {
			return nil, err
		}
		return response, nil
	}
}

// Stream returns an interceptor for streams only, which ignores rules for unary methods. Prefer
// Options. It panics if two rules are for the same method.
func Stream(rules ...Rule) grpc.StreamServerInterceptor {
	byMethod := index(rules)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		rule, ok := byMethod[info.FullMethod]
		if !ok {
			return handler(server, stream)
		}
		first, err := rule.receive(stream, info)
		if err != nil {
			return err
		}
		return rule.run(stream.Context(), first, func(ctx context.Context) error {
			return handler(server, &lockedStream{ServerStream: stream, ctx: ctx, first: first})
		})
	}
}

func index(rules []Rule) map[string]Rule {
	byMethod := make(map[string]Rule, len(rules))
	for _, rule := range rules {
		if _, twice := byMethod[rule.method]; twice {
			panic(fmt.Sprintf("dibsgrpc: two rules for %s", rule.method))
		}
		byMethod[rule.method] = rule
	}
	return byMethod
}

// receive returns a stream's request, if the lock depends on it. A method that receives a stream
// can send first, so a wait for a message could last for ever.
func (r Rule) receive(stream grpc.ServerStream, info *grpc.StreamServerInfo) (proto.Message, error) {
	switch {
	case r.newRequest == nil:
		return nil, nil
	case info.IsClientStream:
		return nil, internal(fmt.Errorf("dibsgrpc: %s: the client sends a stream: use ByContext instead of By", r.method))
	}
	first := r.newRequest()
	return first, stream.RecvMsg(first)
}
