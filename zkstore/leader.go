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

	mu      sync.Mutex
	learned time.Duration // when it was read; zero: never
	time    time.Time     // its time then
}

// about returns the leader's time, as far as it is known. It returns false if that was long ago.
func (c *leaderClock) about() (time.Time, bool) {
	const long = time.Minute
	c.mu.Lock()
	defer c.mu.Unlock()
	age := c.clock.Now() - c.learned
	return c.time.Add(age), c.learned != 0 && age < long
}

func (c *leaderClock) learn(now time.Time) {
	at := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learned, c.time = at, now
}

// leaderTime reads the leader's clock, with a write. It also returns the leader's epoch.
func (s *Store) leaderTime(ctx context.Context, l *link) (now time.Time, epoch int64, err error) {
	path := s.keys.clock()
	stat, err := l.set(ctx, path, nil, -1)
	if errors.Is(err, zk.ErrNoNode) {
		err = errOf(call(ctx, l, func(c *zk.Conn) (string, error) { return c.Create(path, nil, 0, s.config.acl) }))
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			stat, err = l.set(ctx, path, nil, -1)
		}
	}
	if err != nil {
		return time.Time{}, 0, err
	}
	now = time.UnixMilli(stat.Mtime)
	s.leader.learn(now)
	return now, epochOf(stat), nil
}

// epochOf returns the number of the leader that wrote a znode.
func epochOf(stat *zk.Stat) int64 { return stat.Mzxid >> 32 }

// remainingOf returns about how long a persistent entry lasts.
func (s *Store) remainingOf(ctx context.Context, l *link, v value, stat *zk.Stat) (time.Duration, error) {
	now, known := s.leader.about()
	if !known {
		var err error
		if now, _, err = s.leaderTime(ctx, l); err != nil {
			return 0, err
		}
	}
	return time.UnixMilli(stat.Mtime).Add(v.ttl()).Sub(now), nil
}

// reap deletes a persistent entry that is over. A renewal meanwhile changes its version, so it stays.
//
// The clocks of two leaders can differ. So if another leader wrote the entry, reap writes it again:
// its time begins anew after an election.
func (s *Store) reap(ctx context.Context, l *link, path string, data []byte, v value, stat *zk.Stat) (reaped bool, err error) {
	if left, err := s.remainingOf(ctx, l, v, stat); err != nil || left > 0 {
		return false, err
	}
	now, epoch, err := s.leaderTime(ctx, l)
	switch {
	case err != nil:
	case epochOf(stat) != epoch:
		_, err = l.set(ctx, path, data, stat.Version)
	case now.After(time.UnixMilli(stat.Mtime).Add(v.ttl())):
		reaped, err = l.remove(ctx, path, stat.Version)
	}
	if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return reaped, err
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
		reaped, err := s.reap(ctx, l, path, data, v, stat)
		if err != nil {
			return err
		}
		if reaped {
			return errAgain
		}
	}
	return nil
}
