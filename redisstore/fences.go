package redisstore

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, q driver.FenceRequest) (driver.FenceReply, error) {
	if err := errors.Join(s.check(q.Name), driver.CheckFences(q)); err != nil {
		return driver.FenceReply{}, err
	}
	r := s.requests.Get()
	s.format.ReserveFences(&r.Request, q)
	reply, _ := s.do(ctx, r, driver.DeadlineOf(ctx))
	if reply.Err != nil {
		return driver.FenceReply{}, s.wrapReplyError(ctx, driver.DeadlineOf(ctx), "reserve fences", []string{q.Name}, reply.Err)
	}
	last, err := wire.ParseFence(reply.Value)
	if err != nil {
		return driver.FenceReply{}, wrapError("reserve fences", q.Name, err)
	}
	return driver.FenceReply{Held: last > 0, Last: last}, nil
}
