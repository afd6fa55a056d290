package etcdstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchGrant lets a waiter's client be notified of its grant. before is the entry before its own.
//
// An exclusive request holds the name when all entries before its own have left. So it watches the
// last of them, and a release wakes one waiter. A shared request can hold the name earlier, so it
// needs a watch of the queue, which this process needs only once.
func (s *Store) watchGrant(r driver.AcquireRequest, rec record, before entry) {
	in := s.inboxes.get(r.Client)
	if in == nil {
		return
	}
	ctx, cancel := context.WithCancel(in.ctx)
	begins := false
	s.records.change(rec.name, rec.token, rec.key, func(now *record) {
		if begins = now.stopWait == nil && !now.held; begins {
			now.stopWait = cancel
		}
	})
	if !begins {
		cancel()
		return
	}
	if !r.Exclusive() {
		context.AfterFunc(ctx, s.views.add(rec.name, &interest{in: in, token: rec.token, key: rec.key, created: rec.created}))
		return
	}
	in.run(func() {
		defer cancel()
		s.awaitTurn(ctx, in, rec, before)
	})
}

// awaitTurn waits until no entry is before a waiter's entry.
func (s *Store) awaitTurn(ctx context.Context, in *inbox, rec record, before entry) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		turn, err := s.awaitLeave(ctx, in, rec, before)
		switch {
		case err != nil:
			sleep(ctx, pause)
			turn, err = s.place(ctx, rec)
		case !turn.first && !turn.missing:
			turn, err = s.place(ctx, rec)
		}
		switch {
		case err != nil:
		case turn.missing:
			s.endWait(rec)
			s.fences.doubt()
			in.send(driver.Event{Kind: driver.EventRetry, Token: rec.token})
			return
		case turn.first:
			s.granted(in, rec, s.fences.seen(turn.revision, 0), len(rec.value.With) > 0)
			return
		default:
			before, pause = turn.before, firstPause
		}
	}
}

// A turn is a waiter's place in the queue at a revision.
type turn struct {
	revision int64
	missing  bool  // its entry ended
	first    bool  // no entry is before it
	only     bool  // a single entry is before it
	before   entry // the last entry before it
}

// place reads a waiter's place.
func (s *Store) place(ctx context.Context, rec record) (turn, error) {
	const some = 8 // a key of another library's lock, in a folder below, is no entry
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	prefix := s.keys.queue(rec.name)
	reply, err := twice(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.cli.Txn(ctx).Then(
			clientv3.OpGet(rec.key),
			clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(rec.created-1),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(some)),
		).Commit()
	})
	if err != nil {
		return turn{}, err
	}
	own := reply.Responses[0].GetResponseRange().GetKvs()
	q := readQueue(prefix, reply.Responses[1].GetResponseRange().GetKvs())
	t := turn{revision: reply.Header.Revision, missing: len(own) == 0 || own[0].CreateRevision != rec.created, first: len(q) == 0, only: len(q) == 1}
	if len(q) > 0 {
		t.before = q[len(q)-1]
	}
	return t, nil
}

// awaitLeave waits until the entry before a waiter's entry leaves. If it was the only one, its
// removal is the grant.
func (s *Store) awaitLeave(ctx context.Context, in *inbox, rec record, before entry) (turn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Without a start revision, the watch begins at once. The entry may have left before.
	watch := s.cli.Watch(ctx, before.key, clientv3.WithCreatedNotify())
	only := false
	for reply := range watch {
		if err := reply.Err(); err != nil {
			return turn{}, err
		}
		if reply.Created {
			t, err := s.place(ctx, rec)
			if err != nil || t.missing || t.first || t.before.key != before.key || t.before.created != before.created {
				return t, err
			}
			only = t.only
		}
		for _, e := range reply.Events {
			switch {
			case e.Type == mvccpb.Event_DELETE:
				return turn{revision: e.Kv.ModRevision, first: only}, nil
			case only && isReserved(before, e.Kv):
				in.send(driver.Event{Kind: driver.EventRetry, Token: rec.token})
			}
		}
	}
	return turn{}, errWatchEnded
}

// isReserved reports whether a holder released its lease, but keeps the name unavailable.
func isReserved(before entry, kv *mvccpb.KeyValue) bool {
	after, ok := newEntry("", &mvccpb.KeyValue{Key: []byte("x"), Value: kv.Value})
	return ok && !before.Reserved && after.Reserved
}

// granted notifies a client that its waiter holds the name. A multi-lock asks again instead. If the
// session may have ended, the client asks again, too.
func (s *Store) granted(in *inbox, rec record, fence uint64, retry bool) {
	now := s.clock.Check()
	certain := false
	known := s.records.change(rec.name, rec.token, rec.key, func(r *record) {
		r.stopWait = nil
		certain = !retry && r.session != nil && r.session.lasts(now)
		if certain {
			r.held, r.fence = true, fence
		}
	})
	switch {
	case !known:
	case certain:
		in.send(driver.Event{Kind: driver.EventGranted, Token: rec.token, Fence: fence, Ticket: uint64(rec.created)})
	default:
		in.send(driver.Event{Kind: driver.EventRetry, Token: rec.token})
	}
}

// endWait records that nobody waits for an entry's grant.
func (s *Store) endWait(rec record) {
	s.records.change(rec.name, rec.token, rec.key, func(r *record) { r.stopWait = nil })
}
