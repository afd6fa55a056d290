package etcdstore

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
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
	for _, rec := range over {
		w.end(rec)
	}
}

// end removes an entry. If etcd does not answer, it tries again later, until the session ended.
func (w *sweeper) end(rec record) {
	const again = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), driver.OperationTimeout)
	defer cancel()
	var err error
	if rec.created == 0 {
		err = w.s.cancelUnknown(ctx, rec, rec.value.Client)
	} else {
		_, err = w.s.remove(ctx, rec.key, rec.created)
	}
	now := w.s.clock.Check()
	switch {
	case err == nil:
		w.s.records.remove(rec, rec.created != 0)
	case rec.session == nil || rec.session.isOver(now):
		w.s.records.remove(rec, false)
	default:
		w.s.records.change(rec.name, rec.token, rec.key, func(r *record) { r.expires = max(r.expires, now+again) })
		w.wakeAt(now + again)
	}
}
