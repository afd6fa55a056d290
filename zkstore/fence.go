package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

// A fence counts from a base: the microseconds since 1970 when the prefix was first used. So the
// fences are larger than those of another store that a program used before. Each change in
// ZooKeeper has 64 fences, because a single change can grant to several readers.
const fencesPerChange = 64

// fences computes fences. It is safe for concurrent use.
type fences struct {
	base    atomic.Uint64                   // zero: not yet read
	deleted atomic.Pointer[<-chan struct{}] // closed when somebody changes or deletes the base
}

// known reports whether the base was read, and did not change since.
func (f *fences) known() bool {
	deleted := f.deleted.Load()
	if deleted == nil {
		return false
	}
	select {
	case <-*deleted:
		return false
	default:
		return true
	}
}

// at returns the fence of a holder, as a client saw it. pzxid is the last change of the queue, and
// index the holder's place. A later exclusive holder sees a later change: the end of this lease.
func (f *fences) at(pzxid int64, index int) uint64 {
	return f.base.Load() + uint64(pzxid)*fencesPerChange + uint64(min(index, fencesPerChange-1))
}

// upTo returns a number that no fence granted until a change exceeds.
func (f *fences) upTo(pzxid int64) uint64 { return f.at(pzxid, fencesPerChange) }

// loadBase reads the base, or creates it with the prefix.
func (s *Store) loadBase(ctx context.Context) error {
	if s.fences.known() {
		return nil
	}
	l, err := s.sessions.get(ctx)
	if err != nil {
		return err
	}
	path := s.keys.base()
	var data []byte
	var deleted <-chan struct{}
	for {
		if deleted, _, err = l.gone(ctx, path); err != nil {
			return err
		}
		data, _, err = l.get(ctx, path)
		if err == nil {
			break
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := s.createBase(ctx, l, path); err != nil {
			return err
		}
	}
	base, err := strconv.ParseUint(string(data), 10, 52)
	if err != nil || base == 0 {
		return fmt.Errorf("%w: the znode %s contains %q, want the base of the fences: a number", driver.ErrInvalid, path, data)
	}
	for own := s.fences.base.Load(); own < base && !s.fences.base.CompareAndSwap(own, base); own = s.fences.base.Load() {
	}
	s.fences.deleted.Store(&deleted)
	return nil
}

// createBase creates the base, unless another process was first.
func (s *Store) createBase(ctx context.Context, l *link, path string) error {
	if err := l.makePath(ctx, s.keys.prefix, s.config.acl, false); err != nil {
		return err
	}
	base := []byte(strconv.FormatInt(time.Now().UnixMicro(), 10))
	err := errOf(call(ctx, l, func(c *zk.Conn) (string, error) { return c.Create(path, base, 0, s.config.acl) }))
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
