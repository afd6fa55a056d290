package dibsgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgrpc"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

type starter = func(*service, []dibsgrpc.Rule, ...grpc.DialOption) pb.TestServiceClient

// shortTTL is for tests that lose a lease. A client that just started may miss a revocation event,
// and notice the revocation at the next renewal only.
var shortTTL = dibs.TTL(time.Second)

// lose revokes a call's lease, and waits until its context ends.
func lose(ctx context.Context, t *testing.T, locks *dibs.Client, name string) {
	t.Helper()
	if done, err := locks.Revoke(context.Background(), name, dibs.Holder{Fence: carried.Fence(ctx)}, "test"); !done || err != nil {
		t.Errorf("revoke: %v, %v", done, err)
		return
	}
	servicetest.Receive(t, "the context ends", ctx.Done())
}

func reply(text string) *pb.StreamingOutputCallResponse {
	return &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte(text)}}
}

func TestUnaryCall(t *testing.T) {
	eachTransport(t, func(t *testing.T, start starter) {
		store := memstore.New()
		holder, locks := newLocks(t, store), newLocks(t, store, shortTTL)
		client := start(&service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			if carried.FenceOf(ctx, "lost") > 0 {
				lose(ctx, t, locks, "lost")
			}
			return &pb.SimpleResponse{Username: fmt.Sprint(carried.Fence(ctx) > 0)}, nil
		}}, rules(locks, dibs.Wait(0)))

		response, err := client.UnaryCall(t.Context(), request("order:7"))
		if err != nil || response.Username != "true" {
			t.Errorf("have %v, %v", response, err)
		}
		_, err = client.UnaryCall(t.Context(), request("lost"))
		wantCode(t, err, codes.Internal, 0)
		_, err = client.UnaryCall(t.Context(), request(""))
		wantCode(t, err, codes.InvalidArgument, 0)

		lease, err := holder.Mutex("order:7").Lock(t.Context(), dibs.TTL(time.Hour), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.UnaryCall(t.Context(), request("order:7"))
		s := status.Convert(err)
		if s.Code() != codes.Aborted || len(s.Details()) != 1 || s.Message() != "locked by another call" {
			t.Errorf("have %v, %v", err, s.Details())
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// The client's deadline, or its end, ends the wait at the server.
func TestClientLeavesTheQueue(t *testing.T) {
	eachTransport(t, func(t *testing.T, start starter) {
		store := memstore.New()
		holder, locks := newLocks(t, store), newLocks(t, store)
		lease, err := holder.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client := start(&service{}, rules(locks))
		waiting := func() int {
			state, err := locks.Inspect(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			return state.Waiting
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := client.UnaryCall(ctx, request("n")); failed <- err }()
		servicetest.Eventually(t, "the call waits", func() bool { return waiting() == 1 })
		cancel()
		wantCode(t, servicetest.Receive(t, "the client ends", failed), codes.Canceled, 0)
		servicetest.Eventually(t, "the queue is empty", func() bool { return waiting() == 0 })

		ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err = client.UnaryCall(ctx, request("n"))
		wantCode(t, err, codes.DeadlineExceeded, 0)
		servicetest.Eventually(t, "the queue is empty", func() bool { return waiting() == 0 })
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
		servicetest.WantFree(t, locks, "n")
	})
}

// A client with a retry policy for Aborted succeeds when the lock is free.
func TestRetryPolicy(t *testing.T) {
	eachTransport(t, func(t *testing.T, start starter) {
		store := memstore.New()
		holder := newLocks(t, store)
		lease, err := holder.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		busy := 0
		locks := newLocks(t, store, dibs.Observe(dibs.Hooks{AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) {
			if errors.Is(e.Err, dibs.ErrBusy) {
				busy++
				lease.Unlock()
			}
		}}))
		policy := grpc.WithDefaultServiceConfig(`{"methodConfig": [{
			"name": [{"service": "grpc.testing.TestService"}],
			"retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["ABORTED"]}
		}]}`)
		client := start(&service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return &pb.SimpleResponse{}, nil
		}}, rules(locks, dibs.Wait(0)), policy)
		if _, err := client.UnaryCall(t.Context(), request("n")); err != nil || busy != 1 {
			t.Errorf("have %v after %d busy attempts, want 1", err, busy)
		}
	})
}

// A response stream should be locked by its request, and should not succeed after a loss.
func TestStreamOfResponses(t *testing.T) {
	eachTransport(t, func(t *testing.T, start starter) {
		locks := newLocks(t, memstore.New(), shortTTL)
		client := start(&service{output: func(r *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
			name := string(r.GetPayload().GetBody())
			if _, err := locks.Mutex(name).TryLock(context.Background()); !errors.Is(err, dibs.ErrBusy) {
				t.Errorf("a second lock during the stream: %v, want ErrBusy", err)
			}
			if err := stream.RecvMsg(new(pb.StreamingOutputCallRequest)); !errors.Is(err, io.EOF) {
				t.Errorf("a second request: %v, want EOF", err)
			}
			if err := stream.Send(reply("first")); err != nil {
				return err
			}
			if name == "lost" {
				lose(stream.Context(), t, locks, name)
				if err := stream.Send(reply("late")); !errors.Is(err, dibs.ErrLost) {
					t.Errorf("send after the loss: %v, want ErrLost", err)
				}
			}
			return nil
		}}, rules(locks))
		for name, code := range map[string]codes.Code{"order:7": codes.OK, "lost": codes.Internal} {
			stream, err := client.StreamingOutputCall(t.Context(), &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte(name)}})
			if err != nil {
				t.Fatal(err)
			}
			if message, err := stream.Recv(); err != nil || string(message.Payload.Body) != "first" {
				t.Errorf("%s: have %v, %v", name, message, err)
			}
			message, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if status.Code(err) != code || message != nil {
				t.Errorf("%s: have %v, %v, want %v", name, message, err, code)
			}
			servicetest.WantFree(t, locks, name)
		}
	})
}

// Streams from the client are locked by their metadata, before the first message.
func TestStreamsOfRequests(t *testing.T) {
	eachTransport(t, func(t *testing.T, start starter) {
		locks := newLocks(t, memstore.New(), shortTTL)
		client := start(&service{
			input: func(stream pb.TestService_StreamingInputCallServer) error {
				n := int32(0)
				for {
					_, err := stream.Recv()
					if errors.Is(err, io.EOF) {
						return stream.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: n})
					}
					if err != nil {
						return err
					}
					n++
				}
			},
			duplex: func(stream pb.TestService_FullDuplexCallServer) error { // the server sends first
				if err := stream.Send(reply("hello")); err != nil {
					return err
				}
				lose(stream.Context(), t, locks, "lost")
				message, err := stream.Recv()
				if !errors.Is(err, dibs.ErrLost) {
					t.Errorf("receive after the loss: %v, %v, want ErrLost", message, err)
				}
				return nil
			},
		}, rules(locks))

		input, err := client.StreamingInputCall(metadata.AppendToOutgoingContext(t.Context(), "lock", "n"))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := input.Send(&pb.StreamingInputCallRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		if response, err := input.CloseAndRecv(); err != nil || response.AggregatedPayloadSize != 3 {
			t.Errorf("have %v, %v, want 3 messages", response, err)
		}

		duplex, err := client.FullDuplexCall(metadata.AppendToOutgoingContext(t.Context(), "lock", "lost"))
		if err != nil {
			t.Fatal(err)
		}
		if hello, err := duplex.Recv(); err != nil || string(hello.Payload.Body) != "hello" {
			t.Errorf("have %v, %v", hello, err)
		}
		if err := duplex.Send(&pb.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("send: %v", err)
		}
		_, err = duplex.Recv()
		wantCode(t, err, codes.Internal, 0)

		unnamed, err := client.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = unnamed.Recv()
		wantCode(t, err, codes.FailedPrecondition, 0)
	})
}

// A rule that needs a request fails the call if the client sends a stream.
func TestByForAStreamOfRequests(t *testing.T) {
	eachTransport(t, func(t *testing.T, start starter) {
		rule := dibsgrpc.By(pb.TestService_FullDuplexCall_FullMethodName, func(context.Context, *pb.StreamingOutputCallRequest) (dibs.Doer, error) {
			t.Error("the lock function is called")
			return nil, nil
		})
		stream, err := start(&service{}, []dibsgrpc.Rule{rule}).FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		wantCode(t, err, codes.Internal, 0)
	})
}

// Two servers increment counters without any other protection.
func TestSum(t *testing.T) {
	const clients, calls, names = 16, 15, 3
	eachTransport(t, func(t *testing.T, start starter) {
		store := memstore.New()
		var counters [names]int
		s := &service{unary: func(_ context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			counter := &counters[r.Payload.Body[0]-'0']
			before := *counter
			for range 10 {
				runtime.Gosched()
			}
			*counter = before + 1
			return &pb.SimpleResponse{}, nil
		}}
		servers := []pb.TestServiceClient{start(s, rules(newLocks(t, store))), start(s, rules(newLocks(t, store)))}
		var group sync.WaitGroup
		for c := range clients {
			group.Go(func() {
				for i := range calls {
					if _, err := servers[c%len(servers)].UnaryCall(t.Context(), request(fmt.Sprint((c+i)%names))); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		for name, have := range counters {
			if want := clients * calls / names; have != want {
				t.Errorf("counter %d is %d, want %d", name, have, want)
			}
		}
	})
}
