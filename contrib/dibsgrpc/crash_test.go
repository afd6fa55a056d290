//go:build unix

package dibsgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/contrib/dibsgrpc"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/goredisstore/redisurl"
	"github.com/dibslock/dibs/internal/test/childtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/servicetest"
)

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]childtest.Role{"serve": serveRole})
}

// crashTTL is how long the store keeps a killed or stopped process's lock.
const crashTTL = 3 * time.Second

// serveRole is a server process, with its locks on a Redis. It prints its address. A call with
// ResponseSize runs until the call EmptyCall, and then returns success: with 1 at once, with 2
// after its context ends.
func serveRole(out io.Writer, args []string) error {
	url, err := redisurl.Parse(args[0])
	if err != nil {
		return err
	}
	rdb, err := url.Open()
	if err != nil {
		return err
	}
	defer rdb.Close()
	locks := dibs.New(goredisstore.New(rdb), dibs.TTL(crashTTL), dibs.Wait(0))
	defer locks.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, listener.Addr())
	server := grpc.NewServer(dibsgrpc.Options(rules(locks)...)...)
	pb.RegisterTestServiceServer(server, &lateService{out: out, finish: make(chan struct{})})
	return server.Serve(listener)
}

type lateService struct {
	pb.UnimplementedTestServiceServer
	out    io.Writer
	finish chan struct{}
}

func (s *lateService) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	close(s.finish)
	return &pb.Empty{}, nil
}

func (s *lateService) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if r.ResponseSize > 0 {
		fmt.Fprintln(s.out, "working")
		<-s.finish
	}
	if r.ResponseSize > 1 {
		<-ctx.Done()
		fmt.Fprintln(s.out, "lost:", errors.Is(context.Cause(ctx), dibs.ErrLost))
	}
	return &pb.SimpleResponse{}, nil
}

// occupy starts a call that holds the lock until EmptyCall.
func occupy(t *testing.T, child *childtest.Child, client pb.TestServiceClient, late int32) (began time.Time, first <-chan error) {
	t.Helper()
	r, ended := request("order:42"), make(chan error, 1)
	r.ResponseSize = late
	began = time.Now()
	go func() { _, err := client.UnaryCall(t.Context(), r); ended <- err }()
	if line := child.Line(); line != "working" {
		t.Fatalf("the server prints %q, want working", line)
	}
	return began, ended
}

// untilServed repeats a call until it succeeds. It checks the earlier responses: each is Aborted,
// and its RetryInfo the lease's expiry, which the caller knows to be between two times. A call
// after the first promised time is served.
func untilServed(t *testing.T, client pb.TestServiceClient, earliest, latest time.Time) {
	t.Helper()
	const slack = 500 * time.Millisecond // a renewal sent before a process ends can arrive later
	latest = latest.Add(slack)
	begin := time.Now()
	var promised time.Time
	busy := 0
	for ; ; time.Sleep(50 * time.Millisecond) { // between polls
		sent := time.Now()
		_, err := client.UnaryCall(t.Context(), request("order:42"))
		got := time.Now()
		if err == nil {
			if busy == 0 || got.Before(earliest) {
				t.Errorf("after %d busy answers, served %v before the lease has expired", busy, earliest.Sub(got))
			}
			t.Logf("served after %v and %d busy answers", got.Sub(begin).Round(time.Millisecond), busy)
			return
		}
		s := status.Convert(err)
		if s.Code() != codes.Aborted || len(s.Details()) != 1 {
			t.Fatalf("have %v, %v, want Aborted with a RetryInfo", err, s.Details())
		}
		retry := s.Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration()
		least, most := earliest.Sub(got)-time.Millisecond, max(latest.Sub(sent), 100*time.Millisecond) // Redis rounds down to 1 ms
		if retry < least || retry > most {
			t.Fatalf("have a retry in %v, want %v to %v", retry, least, most)
		}
		if busy++; busy == 1 {
			promised = got.Add(retry + slack)
		} else if sent.After(promised) {
			t.Fatalf("busy %v after the promised time", sent.Sub(promised))
		}
	}
}

// A server process is killed in the middle of a call.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := childtest.Start(t, "serve", redis.URL()), childtest.Start(t, "serve", redis.URL())
	clientA, clientB := dial(t, a.Line()), dial(t, b.Line())
	began, first := occupy(t, a, clientA, 1)
	a.Kill()
	untilServed(t, clientB, began.Add(crashTTL), time.Now().Add(crashTTL))
	wantCode(t, servicetest.Receive(t, "the first call ends", first), codes.Unavailable, 0) // from gRPC itself
}

// A server process is stopped for longer than the TTL. Its late handler does not succeed.
func TestStoppedServer(t *testing.T) {
	for late, name := range map[int32]string{1: "ignores the context", 2: "after the context"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			a, b := childtest.Start(t, "serve", redis.URL()), childtest.Start(t, "serve", redis.URL())
			clientA, clientB := dial(t, a.Line()), dial(t, b.Line())
			began, first := occupy(t, a, clientA, late)
			if err := a.Process().Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			untilServed(t, clientB, began.Add(crashTTL), time.Now().Add(crashTTL))
			if err := a.Process().Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if _, err := clientA.EmptyCall(t.Context(), &pb.Empty{}); err != nil {
				t.Fatal(err)
			}
			if late > 1 {
				if line := a.Line(); line != "lost: true" {
					t.Errorf("the late handler prints %q", line)
				}
			}
			wantCode(t, servicetest.Receive(t, "the first call ends", first), codes.Internal, 0)
		})
	}
}
