package redisstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// Redisson makes the store share its locks with Redisson, the library for Java: the lock of a
// name is an RLock with the same name. Each side waits while the other holds, and is woken
// by its release. The prefix is empty then, unless Prefix is given, for a NameMapper.
//
// A lease of dibs is for Redisson an RLock of another process. It may be a mutex, a set of
// names, an election or a periodic job. Readers and permits return driver.ErrInvalid, since
// Redisson has other forms for these. So do the votes of a quorum. A key that is no RLock
// returns driver.ErrWrongType, and stays as it is: the RReadWriteLock, for example.
//
// All clients that share a name need this option, those of dibs too. Waiters of dibs are
// served in order. Between dibs and Redisson there is no order: while clients of Redisson
// wait, both sides get about the same part of the time.
func Redisson() Option { return func(s *settings) { s.format.Redisson = new(wire.Redisson) } }

// RedissonFences makes the fences of dibs and the tokens of RFencedLock one growing sequence
// for each name. It implies Redisson. All clients of dibs that share a name need it. It costs
// two commands for each grant, and a key for each name that never expires.
func RedissonFences() Option {
	return func(s *settings) { s.format.Redisson, s.fenced = new(wire.Redisson), true }
}

// completeRedisson sets what Redisson mode implies. Options may come in any order.
func (s *settings) completeRedisson() {
	if s.format.Redisson == nil {
		return
	}
	s.format.Redisson = &wire.Redisson{Sharded: s.format.Sharded, Fenced: s.fenced}
	s.mixed = true
	if !s.prefixed {
		s.format.Prefix = ""
	}
}

// recogniseRedisson completes the state of a name that Redisson holds. This needs one more
// call: without the right to it, the state has the holder all the same.
func (s *Store) recogniseRedisson(ctx context.Context, state driver.State) driver.State {
	if len(state.Holders) != 1 {
		return state
	}
	if h := state.Holders[0]; h.Fence != 0 || h.Reserved || foreign.HasTokenForm(h.Token) {
		return state
	}
	if described, ok := s.describe(ctx, driver.DeadlineOf(ctx), []string{state.Name}); ok && described.Foreign.Lock {
		state.Foreign, state.Holders = described.Foreign, described.Holders
	}
	return state
}

// checkRedisson rejects a request that Redisson has another form for.
func (s *Store) checkRedisson(c driver.AcquireRequest) error {
	if s.format.Redisson == nil || c.Exclusive() {
		return nil
	}
	return fmt.Errorf("%w: %q: a store in Redisson mode has no readers and no permits: use a mutex, or a store without it", driver.ErrInvalid, c.Name)
}
