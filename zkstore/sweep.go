package zkstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

// A sweeper ends entries on time whose session lasts longer: leases that their client stopped
// renewing, waiters without a heartbeat, and reservations. It is safe for concurrent use.
type sweeper struct {
	s *Store

	mu    sync.Mutex
	timer *time.Timer
	at    time.Duration // when it runs; zero: never
}

// wakeAt lets the sweeper run at a time, if it is not zero.
func (w *sweeper) wakeAt(at time.Duration) {
	if at == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at != 0 && w.at <= at {
		return
	}
	w.at = at
	d := max(at-w.s.clock.Now(), 0)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.run)
		return
	}
	w.timer.Reset(d)
}

// run ends the entries that are over.
func (w *sweeper) run() {
	w.mu.Lock()
	w.at = 0
	w.mu.Unlock()
	over, next := w.s.records.expired(w.s.clock.Check())
	w.wakeAt(next)
	concurrently(over, w.end)
}

// end removes an entry. If ZooKeeper does not answer, it tries again later: others can keep the
// entry's session alive.
func (w *sweeper) end(rec record) {
	const again = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), driver.OperationTimeout)
	defer cancel()
	err := w.s.endOwn(ctx, rec)
	if err == nil || w.s.sessions.isClosed() || rec.session != nil && rec.session.hasEnded() {
		w.s.forget(rec)
		return
	}
	at := w.s.clock.Check() + again
	w.s.records.change(rec, func(now *record) { now.expires = at })
	w.wakeAt(at)
}

// endOwn removes an entry unless another process moved it to its own session: then that process
// renews it.
func (s *Store) endOwn(ctx context.Context, rec record) error {
	if rec.entry.name == "" {
		_, err := s.remove(ctx, rec)
		return err
	}
	l, err := s.linkOf(ctx, rec)
	if err != nil {
		return err
	}
	path := s.keys.entry(rec.name, rec.entry.name)
	version := int32(-1)
	if rec.entry.persistent {
		version = rec.version
	}
	removed, err := l.remove(ctx, path, version)
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		return nil // another process renewed it
	case err != nil || removed || rec.entry.persistent:
		return err
	}
	return s.endMoved(ctx, rec)
}

// endMoved removes an entry that moved to another session of this process: the answer to the move was
// lost. As long as its record exists, nobody can use it.
func (s *Store) endMoved(ctx context.Context, rec record) error {
	found, ok, err := s.find(ctx, rec.name, rec.token)
	if err != nil || !ok || found.entry.seq != rec.entry.seq {
		return err
	}
	on := s.sessions.find(found.owner)
	if on == nil {
		return nil
	}
	return errOf(on.remove(ctx, s.keys.entry(rec.name, found.entry.name), -1))
}

// concurrent is how many requests a call sends at the same time.
const concurrent = 16

// concurrently calls do for all elements, several at the same time.
func concurrently[E any](all []E, do func(E)) {
	slots := make(chan struct{}, concurrent)
	var group sync.WaitGroup
	for _, e := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(e)
		})
	}
	group.Wait()
}
