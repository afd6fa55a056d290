package dibsgrpc_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgrpc"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/memstore"
)

// BenchmarkInterceptor measures a call without its connection: the bare handler, the lock alone,
// and the handler under the lock. The difference between the last two is the interceptor.
func BenchmarkInterceptor(b *testing.B) {
	locks := newLocks(b, memstore.New())
	lockAlone := func(ctx context.Context, message any) (any, error) {
		lease, err := locks.Mutex(string(message.(*pb.SimpleRequest).Payload.Body)).Lock(ctx)
		if err != nil {
			return nil, err
		}
		if err := lease.Unlock(); err != nil {
			return nil, err
		}
		return done(ctx, message)
	}
	none := dibsgrpc.Unary()
	locked := dibsgrpc.Unary(rules(locks)...)
	info := &grpc.UnaryServerInfo{FullMethod: method}
	for _, c := range []struct {
		name string
		call func(ctx context.Context, message any) (any, error)
	}{
		{"bare", done},
		{"norule", func(ctx context.Context, message any) (any, error) { return none(ctx, message, info, done) }},
		{"lock alone", lockAlone},
		{"interceptor", func(ctx context.Context, message any) (any, error) { return locked(ctx, message, info, done) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			message := request("order:42")
			for b.Loop() {
				if _, err := c.call(b.Context(), message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOverhead measures a call over a connection: without a lock, and with locks in memory and
// on a local Redis.
func BenchmarkOverhead(b *testing.B) {
	b.Run("bare", func(b *testing.B) { measureCalls(b, nil) })
	b.Run("dibs", func(b *testing.B) { measureCalls(b, rules(newLocks(b, memstore.New()))) })
	b.Run("redis", func(b *testing.B) {
		url, err := redisurl.Parse(redistest.Start(b).URL())
		if err != nil {
			b.Fatal(err)
		}
		rdb, err := url.Open()
		if err != nil {
			b.Fatal(err)
		}
		defer rdb.Close()
		locks := dibs.New(goredisstore.New(rdb))
		defer locks.Close()
		measureCalls(b, rules(locks))
	})
}

func measureCalls(b *testing.B, rules []dibsgrpc.Rule) {
	s := &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { return &pb.SimpleResponse{}, nil }}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	client := startServer(b, listener, listener.Addr().String(), s, rules)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.UnaryCall(b.Context(), request("order:42")); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStream measures a message to the server and a message back, over a connection.
func BenchmarkStream(b *testing.B) {
	s := &service{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := stream.Recv(); err != nil {
				return nil //nolint:nilerr // the stream's end
			}
			if err := stream.Send(reply("pong")); err != nil {
				return err
			}
		}
	}}
	for name, rules := range map[string][]dibsgrpc.Rule{"plain": nil, "memory": rules(newLocks(b, memstore.New()))} {
		b.Run(name, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			client := startServer(b, listener, listener.Addr().String(), s, rules)
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(b.Context(), "lock", "order:42"))
			defer cancel()
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
					b.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
