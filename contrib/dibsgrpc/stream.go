package dibsgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dibslock/dibs"
)

// A lockedStream is a stream until its lease is lost.
type lockedStream struct {
	grpc.ServerStream
	ctx   context.Context // ends with the lease
	first proto.Message   // received already, or nil
}

func (s *lockedStream) Context() context.Context { return s.ctx }

func (s *lockedStream) SendMsg(message any) error {
	return s.untilLost(func() error { return s.ServerStream.SendMsg(message) })
}

// RecvMsg also reports a loss that came together with the message.
func (s *lockedStream) RecvMsg(message any) error {
	if into, ok := message.(proto.Message); ok && s.first != nil {
		proto.Reset(into)
		proto.Merge(into, s.first)
		s.first = nil
		return s.lost()
	}
	if err := s.untilLost(func() error { return s.ServerStream.RecvMsg(message) }); err != nil {
		return err
	}
	return s.lost()
}

// untilLost makes a call that can block, and returns at the loss without waiting for it. gRPC ends
// the call when the method returns. Nothing can end it before: its context is the transport's, and
// only a caller or the method's end cancels it.
func (s *lockedStream) untilLost(call func() error) error {
	if err := s.lost(); err != nil {
		return err
	}
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.panicked = recover() // by a codec
			ended <- o
		}()
		o.err = call()
	}()
	select {
	case o := <-ended:
		return o.result()
	case <-s.ctx.Done():
	}
	if err := s.lost(); err != nil {
		return err
	}
	return (<-ended).result() // the caller is gone, which also ends the call
}

// An outcome is a call's in another goroutine.
type outcome struct {
	err      error
	panicked any
}

// result returns the error, or panics as the call did, for the outer interceptors.
func (o outcome) result() error {
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

func (s *lockedStream) lost() error {
	if s.ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(s.ctx); errors.Is(cause, dibs.ErrLost) {
		return FromError(cause)
	}
	return nil
}
