package dibsgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgrpc"
	"github.com/dibslock/dibs/memstore"
)

// fenced is a method that prints whether its context contains a fence.
func fenced(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	_, err := dibs.Fence(ctx)
	fmt.Printf("%s: fence %v\n", r.Payload.Body, err == nil)
	return &pb.SimpleResponse{}, nil
}

// serveExample runs a server with these options, and calls f with a client.
func serveExample(s *service, f func(client pb.TestServiceClient), options ...grpc.ServerOption) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(server, s)
	go server.Serve(listener) // ends with Stop
	defer server.GracefulStop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	f(pb.NewTestServiceClient(conn))
}

// Each order is charged by a single call at a time, on however many machines the service runs.
func ExampleBy() {
	locks := dibs.New(memstore.New()) // goredisstore.New(rdb) in production
	defer locks.Close()

	charge := dibsgrpc.By(pb.TestService_UnaryCall_FullMethodName, func(_ context.Context, r *pb.SimpleRequest) (dibs.Doer, error) {
		return locks.Mutex("order:" + string(r.Payload.Body)), nil
	}, dibs.Wait(time.Millisecond))

	serveExample(&service{unary: fenced}, func(client pb.TestServiceClient) {
		ctx := context.Background()
		_, err := client.UnaryCall(ctx, request("42"))
		fmt.Println(err)
		_ = locks.Mutex("order:42").Do(ctx, func(ctx context.Context) error { // somebody else
			_, err := client.UnaryCall(ctx, request("42"))
			fmt.Println(status.Code(err), status.Convert(err).Message())
			for _, detail := range status.Convert(err).Details() {
				if info, ok := detail.(*errdetails.RetryInfo); ok {
					fmt.Println("retry in", info.GetRetryDelay().AsDuration().Round(time.Second))
				}
			}
			return nil
		})
	}, dibsgrpc.Options(charge)...)
	// Output:
	// 42: fence true
	// <nil>
	// Aborted locked by another call
	// retry in 30s
}

// A stream from the client is locked by its metadata, before its first message.
func ExampleByContext() {
	locks := dibs.New(memstore.New())
	defer locks.Close()

	upload := dibsgrpc.ByContext(pb.TestService_StreamingInputCall_FullMethodName, func(ctx context.Context) (dibs.Doer, error) {
		file := metadata.ValueFromIncomingContext(ctx, "file")
		if len(file) != 1 {
			return nil, status.Error(codes.InvalidArgument, "the metadata has no file")
		}
		return locks.Mutex("file:" + file[0]), nil
	}, dibs.Wait(3*time.Second))
	receive := func(stream pb.TestService_StreamingInputCallServer) error {
		_, err := dibs.Fence(stream.Context())
		fmt.Println("fence:", err == nil)
		return stream.SendAndClose(&pb.StreamingInputCallResponse{})
	}
	serveExample(&service{input: receive}, func(client pb.TestServiceClient) {
		for _, ctx := range []context.Context{
			metadata.AppendToOutgoingContext(context.Background(), "file", "a.txt"),
			context.Background(),
		} {
			stream, err := client.StreamingInputCall(ctx)
			if err != nil {
				fmt.Println(err)
				return
			}
			_, err = stream.CloseAndRecv()
			fmt.Println(status.Code(err))
		}
	}, dibsgrpc.Options(upload)...)
	// Output:
	// fence: true
	// OK
	// InvalidArgument
}

// A method that calls Do itself returns the same codes. The dibs error is for the server's log.
func ExampleFromError() {
	locks := dibs.New(memstore.New())
	locks.Close()

	err := locks.Mutex("report").Do(context.Background(), func(context.Context) error { return nil })
	err = dibsgrpc.FromError(err)
	fmt.Println(status.Code(err), status.Convert(err).Message())
	fmt.Println(errors.Is(err, dibs.ErrClosed))
	// Output:
	// Unavailable locks are unavailable
	// true
}
