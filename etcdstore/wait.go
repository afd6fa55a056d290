package etcdstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchGrant lets a waiter's client be notified of its grant. before is the entry before its own.
//
// An exclusive request holds the name when all entries before its own have left. So it watches the
// last of them, and a release wakes one waiter. A shared request can hold the name earlier, so it
// needs a watch of the queue, which this process needs only once.
func (s *Store) watchGrant(r driver.AcquireRequest, rec record, before entry) {
	in := s.inboxes.Get(r.Client)
	if in == nil {
		return
	}
	ctx, cancel := context.WithCancel(in.Context)
	rec.wait = &wait{in, cancel}
	if !s.beginWait(rec) {
		cancel()
		return
	}
	if !r.Exclusive() {
		context.AfterFunc(ctx, s.views.add(&interest{in: in, rec: rec}))
		return
	}
	in.Run(func() {
		defer s.endWait(rec)
		s.awaitTurn(ctx, in, rec, before)
	})
}

// beginWait records a wait. It returns false if the entry is a holder, or its client already waits.
func (s *Store) beginWait(rec record) (begins bool) {
	s.records.update(rec, func(now *record) {
		if begins = !now.held && (now.wait == nil || now.wait.in != rec.wait.in); begins {
			now.endWait(now.wait) // of a Watch that ended
			now.wait = rec.wait
		}
	})
	return begins
}

// endWait records that nobody waits for an entry's grant.
func (s *Store) endWait(rec record) {
	rec.wait.stop()
	s.records.change(rec, func(now *record) { now.endWait(rec.wait) })
}

// awaitTurn waits until no entry is before a waiter's entry.
func (s *Store) awaitTurn(ctx context.Context, in *inbox.Inbox, rec record, before entry) {
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
			s.fences.doubt()
			in.Send(driver.Event{Kind: driver.EventRetry, Token: rec.token})
			return
		case turn.first:
			s.granted(in, rec, s.fences.seen(turn.revision, 0), rec.value.Several)
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
	before   entry // the last entry before it
	unclear  bool  // there are more keys, which may be entries
	second   entry // the entry before that; without a key: there is none
}

// only reports whether a single entry is before a waiter's entry.
func (t turn) only() bool { return t.before.key != "" && t.second.key == "" }

// changed reports whether a waiter need not wait for the end of an entry any more.
func (t turn) changed(before entry) bool {
	return t.missing || t.first || t.before.key != before.key || t.before.created != before.created
}

// place reads a waiter's place. Few keys are enough, unless most belong to another library's locks, in
// folders below the queue.
func (s *Store) place(ctx context.Context, rec record) (turn, error) {
	const some = 8
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	t, err := s.placeAmong(ctx, rec, some)
	if err == nil && t.unclear {
		t, err = s.placeAmong(ctx, rec, 0)
	}
	return t, err
}

// placeAmong reads a waiter's place from the last keys before its entry: at most limit, unless it is
// zero.
func (s *Store) placeAmong(ctx context.Context, rec record, limit int64) (turn, error) {
	prefix := s.keys.queue(rec.name)
	reply, err := twice(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.cli.Txn(ctx).Then(
			clientv3.OpGet(rec.key),
			clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithMaxCreateRev(rec.created-1),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(limit)),
		).Commit()
	})
	if err != nil {
		return turn{}, err
	}
	own := reply.Responses[0].GetResponseRange().GetKvs()
	before := reply.Responses[1].GetResponseRange()
	q := readQueue(prefix, before.GetKvs())
	t := turn{revision: reply.Header.Revision, missing: len(own) == 0 || own[0].CreateRevision != rec.created, first: len(q) == 0}
	t.unclear = len(q) < 2 && before.GetMore()
	if len(q) > 0 {
		t.before = q[len(q)-1]
	}
	if len(q) > 1 {
		t.second = q[len(q)-2]
	}
	return t, nil
}

// awaitLeave waits until the entry before a waiter's entry leaves. If it was the only one, its
// removal is the grant. To know this in time, the waiter also watches the entry before that: when it
// leaves, the waiter reads its place again.
func (s *Store) awaitLeave(ctx context.Context, in *inbox.Inbox, rec record, before entry) (turn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Without a start revision, the watch begins at once. The entry may have left before.
	last := s.cli.Watch(ctx, before.key, clientv3.WithCreatedNotify())
	var second clientv3.WatchChan
	var now turn
	for {
		var reply clientv3.WatchResponse
		var open, isLast bool
		select {
		case reply, open = <-last:
			isLast = true
		case reply, open = <-second:
		}
		switch {
		case !isLast && (!open || reply.Err() != nil):
			second = nil // a request more
			continue
		case !open:
			return turn{}, errWatchEnded
		case reply.Err() != nil:
			return turn{}, reply.Err()
		case isLast && !reply.Created:
			if left := s.leaves(in, rec, now, reply.Events); left > 0 {
				return turn{revision: left, first: now.only()}, nil
			}
			continue
		}
		var err error
		if now, err = s.place(ctx, rec); err != nil || now.changed(before) {
			return now, err
		}
		second = nil
		if !now.only() {
			second = s.cli.Watch(ctx, now.second.key, clientv3.WithFilterPut())
		}
	}
}

// leaves returns the revision at which the entry before a waiter's entry left, or zero.
func (s *Store) leaves(in *inbox.Inbox, rec record, now turn, events []*clientv3.Event) int64 {
	for _, e := range events {
		switch {
		case e.Type == mvccpb.Event_DELETE:
			return e.Kv.ModRevision
		case now.only() && isReserved(now.before, e.Kv):
			in.Send(driver.Event{Kind: driver.EventRetry, Token: rec.token})
		}
	}
	return 0
}

// isReserved reports whether a holder released its lease, but keeps the name unavailable.
func isReserved(before entry, kv *mvccpb.KeyValue) bool {
	after, ok := newEntry("", &mvccpb.KeyValue{Key: []byte("x"), Value: kv.Value})
	return ok && !before.Reserved && after.Reserved
}

// granted notifies a client that its waiter holds the name. The client of a multi-lock is notified to
// retry instead. So is a client whose session may have ended.
func (s *Store) granted(in *inbox.Inbox, rec record, fence uint64, retry bool) {
	at := s.clock.Check()
	waits, certain := false, false
	s.records.update(rec, func(now *record) {
		now.endWait(rec.wait)
		if waits = !now.held; !waits {
			return // a request came first
		}
		certain = !retry && now.session != nil && now.session.lasts(at)
		if certain {
			now.held, now.fence = true, fence
			now.expires += driver.WaiterTTL - waiterTTL // the first TTL also counts from the last request
		}
	})
	switch {
	case !waits:
	case certain:
		in.Send(driver.Event{Kind: driver.EventGranted, Token: rec.token, Fence: fence, Ticket: uint64(rec.created)})
	default:
		in.Send(driver.Event{Kind: driver.EventRetry, Token: rec.token})
	}
}
