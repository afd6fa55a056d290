package dibsgrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgrpc"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

// A service is the service under test, which comes with gRPC. Nil functions are not called.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error)
	output func(r *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error
	input  func(stream pb.TestService_StreamingInputCallServer) error
	duplex func(stream pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return s.unary(ctx, r)
}

func (s *service) StreamingOutputCall(r *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
	return s.output(r, stream)
}

func (s *service) StreamingInputCall(stream pb.TestService_StreamingInputCallServer) error {
	return s.input(stream)
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	return s.duplex(stream)
}

// rules lock the request's body, or the metadata "lock" in a stream from the client.
func rules(locks *dibs.Client, options ...dibs.Option) []dibsgrpc.Rule {
	byMetadata := func(ctx context.Context) (dibs.Doer, error) {
		values := metadata.ValueFromIncomingContext(ctx, "lock")
		if len(values) != 1 {
			return nil, status.Error(codes.FailedPrecondition, "no lock in the metadata")
		}
		return locks.Mutex(values[0]), nil
	}
	return []dibsgrpc.Rule{
		dibsgrpc.By(pb.TestService_UnaryCall_FullMethodName, func(_ context.Context, r *pb.SimpleRequest) (dibs.Doer, error) {
			return locks.Mutex(string(r.GetPayload().GetBody())), nil
		}, options...),
		dibsgrpc.By(pb.TestService_StreamingOutputCall_FullMethodName, func(_ context.Context, r *pb.StreamingOutputCallRequest) (dibs.Doer, error) {
			return locks.Mutex(string(r.GetPayload().GetBody())), nil
		}, options...),
		dibsgrpc.ByContext(pb.TestService_StreamingInputCall_FullMethodName, byMetadata, options...),
		dibsgrpc.ByContext(pb.TestService_FullDuplexCall_FullMethodName, byMetadata, options...),
	}
}

func request(name string) *pb.SimpleRequest {
	return &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(name)}}
}

// eachTransport runs a test on real connections: in memory, and through the loopback interface.
func eachTransport(t *testing.T, test func(t *testing.T, start func(*service, []dibsgrpc.Rule, ...grpc.DialOption) pb.TestServiceClient)) {
	t.Run("bufconn", func(t *testing.T) {
		servicetest.WantNoGoroutines(t)
		test(t, func(s *service, rules []dibsgrpc.Rule, options ...grpc.DialOption) pb.TestServiceClient {
			listener := bufconn.Listen(1 << 16)
			dial := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })
			return startServer(t, listener, "passthrough:bufconn", s, rules, append(options, dial)...)
		})
	})
	t.Run("loopback", func(t *testing.T) {
		servicetest.WantNoGoroutines(t)
		test(t, func(s *service, rules []dibsgrpc.Rule, options ...grpc.DialOption) pb.TestServiceClient {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return startServer(t, listener, listener.Addr().String(), s, rules, options...)
		})
	})
}

// startServer starts a server, and returns its client.
func startServer(t testing.TB, listener net.Listener, target string, s *service, rules []dibsgrpc.Rule, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	server := grpc.NewServer(dibsgrpc.Options(rules...)...)
	pb.RegisterTestServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return dial(t, target, options...)
}

func dial(t testing.TB, target string, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(target, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewTestServiceClient(conn)
}

// newLocks returns a client on a store, which is closed when the test ends.
func newLocks(t testing.TB, store *memstore.Store, options ...dibs.Option) *dibs.Client {
	t.Helper()
	locks := dibs.New(store, options...)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// wantCode checks an error's code and its RetryInfo; zero is none.
func wantCode(t *testing.T, err error, code codes.Code, retry time.Duration) {
	t.Helper()
	s := status.Convert(err)
	var have time.Duration
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			have = info.GetRetryDelay().AsDuration()
		}
	}
	if s.Code() != code || have != retry {
		t.Errorf("have %v with a retry in %v, want %v and %v; %q", s.Code(), have, code, retry, s.Message())
	}
}
