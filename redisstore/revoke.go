package redisstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/pipeline"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, name string, fence uint64, reason string) (bool, error) {
	if err := s.check(name); err != nil {
		return false, err
	}
	if err := driver.CheckRevoke(name, fence, reason); err != nil {
		return false, err
	}
	r := s.requests.Get()
	s.format.Revoke(&r.Request, name, fence, reason)
	reply, retried := s.do(ctx, r, driver.DeadlineOf(ctx))
	if reply.Err != nil && retried {
		return false, wrapError("revoke", name, pipeline.UnknownOutcome(reply.Err))
	}
	if reply.Err != nil {
		return false, s.wrapReplyError(ctx, driver.DeadlineOf(ctx), "revoke", []string{name}, reply.Err)
	}
	switch revoked, err := wire.ParseFlag(reply.Value); {
	case err != nil:
		return false, wrapError("revoke", name, err)
	case !revoked && retried:
		return false, wrapError("revoke", name, errOutcomeUnknown)
	default:
		return revoked, nil
	}
}
