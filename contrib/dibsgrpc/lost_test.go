package dibsgrpc_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/carried"
	"github.com/dibslock/dibs/internal/test/servicetest"
	"github.com/dibslock/dibs/memstore"
)

// A lostState is a state in which a method can be when its lease is lost.
type lostState struct {
	name string
	kind string // the method's
	// work brings the method into its state and calls ready, after which the lease is lost.
	work func(stream lockedMethod, ready func()) error
	feed bool // the client sends until the call ends
}

// A lockedMethod is a locked method's stream. A unary method's contains only the context.
type lockedMethod interface {
	Context() context.Context
	SendMsg(message any) error
	RecvMsg(message any) error
}

var lostStates = []lostState{
	{name: "unary", kind: "unary", work: waitForContext},
	{name: "stream of responses, idle", kind: "output", work: waitForContext},
	{name: "stream of responses, busy", kind: "output", work: sendSmall},
	{name: "stream of responses, blocked in a send", kind: "output", work: sendLarge},
	{name: "stream of requests, idle", kind: "input", work: receive},
	{name: "stream of requests, busy", kind: "input", feed: true, work: receive},
	{name: "bidirectional, idle", kind: "duplex", work: receive},
	{name: "bidirectional, busy", kind: "duplex", feed: true, work: receive},
	{name: "bidirectional, blocked in a send", kind: "duplex", work: sendLarge},
	{name: "after the last message", kind: "output", work: sendLast},
}

func waitForContext(method lockedMethod, ready func()) error {
	ready()
	<-method.Context().Done()
	return context.Cause(method.Context())
}

func sendLast(method lockedMethod, ready func()) error {
	if err := method.SendMsg(reply("last")); err != nil {
		return err
	}
	return waitForContext(method, ready)
}

func sendSmall(method lockedMethod, ready func()) error {
	return sendUntilLost(method, 1, ready)
}

// sendLarge sends more than a stream's flow control permits to a client that reads nothing.
func sendLarge(method lockedMethod, ready func()) error {
	return sendUntilLost(method, 1<<20, ready)
}

func sendUntilLost(method lockedMethod, size int, ready func()) error {
	message := reply(string(make([]byte, size)))
	if err := method.SendMsg(message); err != nil {
		return err
	}
	ready()
	for {
		if err := method.SendMsg(message); err != nil {
			return err
		}
	}
}

func receive(method lockedMethod, ready func()) error {
	ready()
	for {
		if err := method.RecvMsg(new(pb.StreamingInputCallRequest)); err != nil { // without any fields set
			return err
		}
	}
}

// In each state the caller receives Internal, and the method returns whatever its caller does.
func TestLostInEachState(t *testing.T) {
	for _, state := range lostStates {
		t.Run(state.name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, start starter) { testLost(t, start, state) })
		})
	}
}

func testLost(t *testing.T, start starter, state lostState) {
	locks := newLocks(t, memstore.New(), shortTTL)
	ready, returned := make(chan uint64, 1), make(chan error, 1)
	work := func(method lockedMethod) error {
		err := state.work(method, func() { ready <- carried.Fence(method.Context()) })
		returned <- err
		return nil
	}
	client := start(&service{
		unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return &pb.SimpleResponse{}, work(unaryMethod{ctx: ctx})
		},
		output: func(_ *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
			return work(stream)
		},
		input:  func(stream pb.TestService_StreamingInputCallServer) error { return work(stream) },
		duplex: func(stream pb.TestService_FullDuplexCallServer) error { return work(stream) },
	}, rules(locks))

	result := make(chan error, 1)
	read := make(chan struct{})
	go func() { result <- callLost(t, client, state, read) }()
	if done, err := locks.Revoke(t.Context(), "n", dibs.Holder{Fence: servicetest.Receive(t, "the method is ready", ready)}, "test"); !done || err != nil {
		t.Fatalf("revoke: %v, %v", done, err)
	}
	if err := servicetest.Receive(t, "the method returns", returned); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("the method has %v, want ErrLost", err)
	}
	close(read)
	wantCode(t, servicetest.Receive(t, "the call ends", result), codes.Internal, 0)
	servicetest.WantFree(t, locks, "n")
}

// unaryMethod is a method without messages.
type unaryMethod struct {
	lockedMethod
	ctx context.Context
}

func (m unaryMethod) Context() context.Context { return m.ctx }

// callLost calls a state's method, and returns the error with which the call ends. The client
// begins to read after the channel is closed.
func callLost(t *testing.T, client pb.TestServiceClient, state lostState, read <-chan struct{}) error {
	ctx := metadata.AppendToOutgoingContext(t.Context(), "lock", "n")
	var stream interface {
		SendMsg(message any) error
		RecvMsg(message any) error
	}
	var err error
	switch state.kind {
	case "unary":
		_, err = client.UnaryCall(ctx, request("n"))
		return err
	case "output":
		stream, err = client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: []byte("n")}})
	case "input":
		stream, err = client.StreamingInputCall(ctx)
	case "duplex":
		stream, err = client.FullDuplexCall(ctx)
	}
	if err != nil {
		return err
	}
	for state.feed && stream.SendMsg(&pb.StreamingInputCallRequest{}) == nil {
	}
	<-read
	for err == nil {
		err = stream.RecvMsg(new(pb.StreamingOutputCallResponse))
	}
	return err
}
