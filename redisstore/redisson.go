package redisstore

import (
	"context"
	"fmt"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
)

// Redisson makes the store share its locks with Redisson, the library for Java: a name's lock is
// the RLock with the same name. Each side waits while the other holds the lock. A release by dibs
// notifies Redisson's waiters. While Redisson holds the lock, dibs' first waiter polls. The default
// prefix is then empty. If Redisson's NameMapper adds a prefix to names, set it with Prefix.
//
// For Redisson, a dibs lease is an RLock held by another process. The lease can be a mutex, a
// multi-lock (several names together), an election or a periodic job. Requests by readers and
// semaphores return driver.ErrInvalid, because Redisson stores these locks in other forms. The
// store cannot be a quorum's node.
//
// If a key holds another value, a request returns driver.ErrWrongType and does not change it. For
// example, an RReadWriteLock must not share a name with an RLock.
//
// All clients that share a name need this option, including dibs clients. dibs' waiters get the
// lock in order. Between dibs and Redisson there is no order: while Redisson clients wait, both
// sides hold the lock for about the same time. An RFairLock keeps the order only among Redisson's
// threads.
func Redisson() Option {
	return Option{func(s *settings) { s.format.Redisson = true }}
}

// completeRedisson sets the options that Redisson mode implies. Options can come in any order.
func (s *settings) completeRedisson() {
	if !s.format.Redisson {
		return
	}
	s.mixed = true
	if !s.prefixed {
		s.format.Prefix = ""
	}
}

// recogniseRedisson completes a name's state if Redisson holds it. A token without a fence that is
// not in dibs' format is foreign. Another call reads the count, with which the lock is compared
// before it is ended. Without the right to this call, the lock cannot be ended.
func (s *Store) recogniseRedisson(ctx context.Context, state driver.State) driver.State {
	if len(state.Holders) != 1 {
		return state
	}
	if h := state.Holders[0]; h.Fence != 0 || h.Reserved || foreign.ClientOf(h.Token) != "" {
		return state
	}
	if described, ok := s.describe(ctx, driver.DeadlineOf(ctx), []string{state.Name}); ok && described.Foreign.Lock {
		state.Foreign, state.Holders = described.Foreign, described.Holders
		return state
	}
	h := &state.Holders[0]
	if foreign.IsRedissonOwner(h.Token) {
		h.Owner = h.Token
	}
	state.Foreign = &driver.Foreign{
		Key: s.format.Prefix + state.Name, Type: "hash", Kind: foreign.RLockKind, Remaining: h.Remaining, Lock: true,
		Advice: "wait until its holder releases it or it expires; dibs could not read its count, and so cannot end it: the user needs the permissions of describe (docs/spec.md)",
	}
	return state
}

// redissonAdvice returns the advice about a lock in Redisson's form for a store in the other form,
// or "".
func (s *Store) redissonAdvice(d foreign.Description) string {
	const use = "redisstore.Redisson(), or --redisson of the command"
	switch {
	case s.format.Redisson || !d.Lock:
	case d.Kind == foreign.RLockKind:
		return "; to share locks with Redisson, use Redisson mode: " + use
	case d.Kind == foreign.ModeKind:
		return "; its program uses dibs in Redisson mode, so use it here, too: " + use
	}
	return ""
}

// checkRedissonToken rejects the token of a Redisson client, which can reach Attach. Its lock has a
// count, which dibs would delete.
func (s *Store) checkRedissonToken(name, token string) error {
	switch {
	case !s.format.Redisson:
		return nil
	case token == "mode":
		return fmt.Errorf("%w: %q: the token %q is the name of another field of the lock in Redisson mode", driver.ErrInvalid, name, token)
	case !foreign.IsRedissonOwner(token):
		return nil
	}
	return fmt.Errorf("%w: %q: the token is that of a client of Redisson, which alone can release or renew its lock", driver.ErrInvalid, name)
}

// checkRedisson rejects a request for which Redisson uses another form.
func (s *Store) checkRedisson(r driver.AcquireRequest) error {
	if !s.format.Redisson || r.Exclusive() {
		return nil
	}
	return fmt.Errorf("%w: %q: a store in Redisson mode has no readers and no permits: use a mutex, or a store without it", driver.ErrInvalid, r.Name)
}
