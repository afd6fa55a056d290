package redisstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// NotifyWanted implements driver.WantedNotifier. In Redisson mode it also returns true if Redisson
// clients wait. It sends no EventWanted for Redisson clients that begin to wait later.
func (s *Store) NotifyWanted(ctx context.Context, w driver.WantedRequest) (bool, error) {
	if err := s.check(w.Name); err != nil {
		return false, err
	}
	if err := driver.CheckWanted(w); err != nil {
		return false, err
	}
	r := s.requests.Get()
	s.format.Wanted(&r.Request, w)
	reply, _ := s.do(ctx, r, driver.DeadlineOf(ctx))
	if reply.Err != nil {
		return false, s.wrapReplyError(ctx, driver.DeadlineOf(ctx), "notify wanted", []string{w.Name}, reply.Err)
	}
	wanted, err := wire.ParseFlag(reply.Value)
	if err != nil {
		return false, wrapError("notify wanted", w.Name, err)
	}
	return wanted, nil
}
