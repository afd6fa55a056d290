package redisstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// A Redis server may be a node of a quorum.

// AcquireVote implements driver.Voter.
func (s *Store) AcquireVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (driver.VoteReply, error) {
	if err := s.checkVote(c); err != nil {
		return driver.VoteReply{}, err
	}
	return s.acquire(ctx, acquire, c, &v)
}

// CancelVote implements driver.Voter.
func (s *Store) CancelVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) error {
	if err := s.checkVote(c); err != nil {
		return err
	}
	return s.cancel(ctx, c, &v)
}

// ResizeVote implements driver.Voter.
func (s *Store) ResizeVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (driver.AcquireReply, error) {
	if err := s.checkVote(c); err != nil {
		return driver.AcquireReply{}, err
	}
	reply, err := s.acquire(ctx, resize, c, &v)
	return reply.AcquireReply, err
}

// ReleaseVote implements driver.Voter.
func (s *Store) ReleaseVote(ctx context.Context, r driver.ReleaseRequest, v driver.Vote) (bool, error) {
	return s.release(ctx, "release", r, &v, "")
}

func (s *Store) checkVote(c driver.AcquireRequest) error {
	if s.format.Sharded {
		return fmt.Errorf("%w: %q: a cluster cannot be a quorum node: its masters lose data one by one, in failovers", driver.ErrInvalid, c.Name)
	}
	if s.format.Proxy {
		return fmt.Errorf("%w: %q: a proxy cannot be a quorum node: the servers behind it lose data one by one", driver.ErrInvalid, c.Name)
	}
	if s.format.Redisson {
		return fmt.Errorf("%w: %q: a store in Redisson mode cannot be a quorum node", driver.ErrInvalid, c.Name)
	}
	return driver.CheckVote(c)
}
