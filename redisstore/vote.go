package redisstore

import (
	"fmt"

	"github.com/dibslock/dibs/driver"
)

// CanVote implements driver.Voter. A Redis server can be a node of a quorum, but not a cluster,
// servers behind a proxy, or a store in Redisson mode.
func (s *Store) CanVote() error {
	switch {
	case s.format.Sharded:
		return fmt.Errorf("%w: a cluster cannot be a quorum node: its masters lose data one by one, in failovers", driver.ErrInvalid)
	case s.format.Proxy:
		return fmt.Errorf("%w: a proxy cannot be a quorum node: the servers behind it lose data one by one", driver.ErrInvalid)
	case s.format.Redisson:
		return fmt.Errorf("%w: a store in Redisson mode cannot be a quorum node", driver.ErrInvalid)
	}
	return nil
}
