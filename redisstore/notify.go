package redisstore

import (
	"fmt"
	"strings"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// NotifySpring makes each release that leaves a name free notify the waiters of Spring
// Integration's RedisLockRegistry in its mode PUB_SUB_LOCK. They do not poll. The prefix must
// be the key of the registry and a colon, and the key must have no colon. It implies Mixed.
func NotifySpring() Option { return notify(wire.Spring) }

// NotifyPythonRedisLock makes each release that leaves a name free notify the waiters of
// python-redis-lock, which do not poll. The prefix must be the default, "lock:". It cannot be
// used on a cluster, where the list of that library is in another slot. It implies Mixed.
func NotifyPythonRedisLock() Option { return notify(wire.PythonRedisLock) }

func notify(l wire.Library) Option {
	return Option{func(s *settings) { s.format.Notify, s.mixed = l, true }}
}

// checkNotify rejects options that make no sense together.
func (s *Store) checkNotify() error {
	f := s.format
	switch {
	case f.Notify == "":
		return nil
	case f.Redisson != nil:
		return fmt.Errorf("%w: a store in Redisson mode cannot notify waiters of %s", driver.ErrInvalid, f.Notify)
	case f.Notify == wire.PythonRedisLock && f.Sharded:
		return fmt.Errorf("%w: on a cluster the waiters of %s cannot be notified", driver.ErrInvalid, f.Notify)
	case f.Notify == wire.PythonRedisLock && f.Prefix != "lock:":
		return fmt.Errorf("%w: prefix %q: python-redis-lock has the prefix \"lock:\"", driver.ErrInvalid, f.Prefix)
	case f.Notify == wire.Spring && registryOf(f.Prefix) == "":
		return fmt.Errorf("%w: prefix %q: want the key of a RedisLockRegistry and a colon", driver.ErrInvalid, f.Prefix)
	}
	return nil
}

// registryOf returns the key of Spring's registry that has a prefix, or "".
func registryOf(prefix string) string {
	registry, ok := strings.CutSuffix(prefix, ":")
	if !ok || strings.Contains(registry, ":") {
		return ""
	}
	return registry
}
