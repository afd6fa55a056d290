package redisstore

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/pipeline"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// Revoke implements driver.Revoker.
func (s *Store) Revoke(ctx context.Context, q driver.RevokeRequest) (bool, error) {
	if err := s.check(q.Name); err != nil {
		return false, err
	}
	if err := errors.Join(driver.CheckRevoke(q), s.checkRedissonToken(q.Name, q.Token)); err != nil {
		return false, err
	}
	r := s.requests.Get()
	s.format.Revoke(&r.Request, q)
	reply, retried := s.do(ctx, r, driver.DeadlineOf(ctx))
	if reply.Err != nil && retried {
		return false, wrapError("revoke", q.Name, pipeline.UnknownOutcome(reply.Err))
	}
	if reply.Err != nil {
		return false, s.wrapReplyError(ctx, driver.DeadlineOf(ctx), "revoke", []string{q.Name}, reply.Err)
	}
	switch revoked, err := wire.ParseFlag(reply.Value); {
	case err != nil:
		return false, wrapError("revoke", q.Name, err)
	case !revoked && retried:
		return false, wrapError("revoke", q.Name, errOutcomeUnknown)
	default:
		return revoked, nil
	}
}
