package zkstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/go-zookeeper/zk"
)

// A leaderClock is the clock of ZooKeeper's leader: it decides when a persistent entry ends. It is
// safe for concurrent use.
type leaderClock struct {
	clock *bootclock.Clock

	mu    sync.Mutex
	known bool
	ahead time.Duration // how far it is ahead of our clock; it is 1970 there
}

// now returns the leader's time, about. It returns false if that is not known.
func (c *leaderClock) now() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMilli(0).Add(c.ahead + c.clock.Now()), c.known
}

// learn records a time that the leader wrote just now.
func (c *leaderClock) learn(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known, c.ahead = true, time.UnixMilli(ms).Sub(time.UnixMilli(0))-c.clock.Now()
}

// leaderTime reads the leader's clock, with a write.
func (s *Store) leaderTime(ctx context.Context, l *link) (time.Time, error) {
	path := s.keys.clock()
	stat, err := l.set(ctx, path, nil, -1)
	if errors.Is(err, zk.ErrNoNode) {
		err = errOf(call(ctx, l, func(c *zk.Conn) (string, error) { return c.Create(path, nil, 0, s.config.acl) }))
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			stat, err = l.set(ctx, path, nil, -1)
		}
	}
	if err != nil {
		return time.Time{}, err
	}
	s.leader.learn(stat.Mtime)
	return time.UnixMilli(stat.Mtime), nil
}

// aboutNow returns the leader's time, with a write if it is not yet known.
func (s *Store) aboutNow(ctx context.Context, l *link) (time.Time, error) {
	if now, ok := s.leader.now(); ok {
		return now, nil
	}
	return s.leaderTime(ctx, l)
}

// remainingOf returns how long a persistent entry lasts.
func (s *Store) remainingOf(ctx context.Context, l *link, v value, stat *zk.Stat) (time.Duration, error) {
	now, err := s.aboutNow(ctx, l)
	if err != nil {
		return 0, err
	}
	return time.UnixMilli(stat.Mtime).Add(v.ttl()).Sub(now), nil
}

// reap deletes a persistent entry that is over. A renewal meanwhile changes its version, so it stays.
func (s *Store) reap(ctx context.Context, l *link, path string, v value, stat *zk.Stat) (bool, error) {
	if left, err := s.remainingOf(ctx, l, v, stat); err != nil || left > 0 {
		return false, err
	}
	now, err := s.leaderTime(ctx, l)
	if err != nil || !time.UnixMilli(stat.Mtime).Add(v.ttl()).Before(now) {
		return false, err
	}
	removed, err := l.remove(ctx, path, stat.Version)
	if errors.Is(err, zk.ErrBadVersion) {
		return false, nil
	}
	return removed, err
}

// reapAll deletes the persistent entries among some holders that are over. It returns errAgain if it
// deleted one.
func (s *Store) reapAll(ctx context.Context, l *link, name string, holders queue) error {
	for _, e := range holders {
		if !e.persistent {
			continue
		}
		path := s.keys.entry(name, e.name)
		data, stat, err := l.get(ctx, path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return errAgain
		case err != nil:
			return err
		}
		v, ok := parseValue(data)
		if !ok {
			continue
		}
		reaped, err := s.reap(ctx, l, path, v, stat)
		if err != nil {
			return err
		}
		if reaped {
			return errAgain
		}
	}
	return nil
}
