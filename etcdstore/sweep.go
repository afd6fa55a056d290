package etcdstore

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A sweeper ends entries on time whose session lasts longer: leases that their client stopped
// renewing, waiters without a heartbeat, and short reservations. It is safe for concurrent use.
type sweeper struct {
	s *Store

	mu    sync.Mutex
	timer *time.Timer
	at    time.Duration // when it runs; zero: never
}

func newSweeper(s *Store) *sweeper { return &sweeper{s: s} }

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

// end removes an entry. If etcd does not answer, it tries again later: others can keep the entry's
// session alive.
func (w *sweeper) end(rec record) {
	const again = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), driver.OperationTimeout)
	defer cancel()
	err := w.s.endOwn(ctx, rec)
	if err == nil || w.s.cli.Ctx().Err() != nil || rec.session != nil && rec.session.hasEnded() && !rec.inDoubt {
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
	if rec.created == 0 {
		_, err := s.remove(ctx, rec)
		return err
	}
	reply, err := s.cli.Get(ctx, rec.key)
	if err != nil {
		return err
	}
	q := readQueue(s.keys.queue(rec.name), reply.Kvs)
	if len(q) == 0 || q[0].created != rec.created || s.sessionOf(rec, q[0]) == nil {
		return s.forbid(ctx, rec)
	}
	removal, err := s.cli.Txn(ctx).If(unchanged(rec.key, q[0].changed)).Then(clientv3.OpDelete(rec.key)).Commit()
	switch {
	case err != nil:
		return err
	case !removal.Succeeded:
		return errAgain
	}
	return s.forbid(ctx, rec)
}

// forbid leaves a mark if a late request can add an entry.
func (s *Store) forbid(ctx context.Context, rec record) error {
	if !rec.inDoubt {
		return nil
	}
	marks, err := s.sessions.forMarks(ctx)
	if err != nil {
		return err
	}
	_, err = s.cli.Do(ctx, s.markOp(rec, marks))
	return s.afterRefusal(ctx, err, marks)
}
