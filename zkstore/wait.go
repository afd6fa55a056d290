package zkstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
)

// watchGrant lets a waiter's client be notified of its grant. Its entry has an index in the queue.
//
// An exclusive request holds the name when all entries before its own have left. So it watches the
// last of them, and a release wakes one waiter. A shared request can hold the name earlier, so it
// needs a watch of the queue, which this process needs only once.
func (s *Store) watchGrant(r driver.AcquireRequest, rec record, q queue, index int) {
	in := s.inboxes.Get(r.Client)
	if in == nil || rec.session == nil {
		return
	}
	ctx, cancel := context.WithCancel(in.Context)
	rec.wait = &wait{in, cancel}
	if !s.beginWait(rec) {
		cancel()
		return
	}
	if !r.Exclusive() {
		context.AfterFunc(ctx, s.views.add(&interest{in: in, rec: rec, link: rec.session.link}))
		return
	}
	in.Run(func() {
		defer s.endWait(rec)
		s.awaitTurn(ctx, in, rec, turnAt(q, index))
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
func (s *Store) awaitTurn(ctx context.Context, in *inbox.Inbox, rec record, t turn) {
	l := rec.session.link
	retry := func() { in.Send(driver.Event{Kind: driver.EventRetry, Token: rec.token}) }
	pause := firstPause
	watches := make(departures)
	defer watches.forgo(l)
	for ctx.Err() == nil {
		left, err := s.awaitLeave(ctx, l, rec, t, watches)
		if err == nil && left > 0 {
			s.granted(in, rec, s.fences.at(left, 0), rec.severalNames)
			return
		}
		before := t.before
		var now turn
		if err == nil {
			if now, err = s.place(ctx, l, rec); err == nil {
				t = now
			}
		}
		switch {
		case l.hasEnded():
			retry()
			return
		case err != nil:
			sleep(ctx, pause)
			pause = min(2*pause, longestPause)
		case t.missing:
			retry()
			return
		case t.first:
			s.granted(in, rec, s.fences.at(t.pzxid, 0), rec.severalNames)
			return
		default:
			if t.second && t.before.reserved && !before.reserved {
				retry() // the holder released its lease, but keeps the name unavailable
			}
			pause = firstPause
		}
	}
}

// awaitLeave waits until the place of a waiter's entry may have changed. If the only entry before it
// left, it returns the zxid of this change: then the waiter is the holder, and needs no read to know
// it. So a waiter with two entries before it watches both: when the first one leaves, it learns that
// it is the next.
func (s *Store) awaitLeave(ctx context.Context, l *link, rec record, t turn, watches departures) (left int64, err error) {
	watched := []entry{rec.entry, t.before}
	if !t.second {
		watched = append(watched, t.beforeThat)
	}
	ds, err := s.departs(ctx, l, rec.name, watched, watches)
	if ds == nil || err != nil {
		return 0, err
	}
	own, before, earlier := ds[0], ds[1], (<-chan struct{})(nil)
	if !t.second {
		earlier = ds[2].done
	}
	select {
	case <-before.done:
		if t.second && !own.over() {
			return before.zxid, nil
		}
	case <-earlier:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return 0, nil
}

// departs returns the watches of entries of a name, in one round trip. It returns nil if one does not
// exist.
func (s *Store) departs(ctx context.Context, l *link, name string, entries []entry, watches departures) ([]*departure, error) {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	all, errs := make([]*departure, len(entries)), make([]error, len(entries))
	var group sync.WaitGroup
	for i, e := range entries {
		path := s.keys.entry(name, e.name)
		if d := watches[path]; d != nil && !d.over() {
			all[i] = d
			continue
		}
		group.Go(func() { all[i], errs[i] = l.departs(ctx, path) })
	}
	group.Wait()
	for i, e := range entries {
		if all[i] != nil {
			watches[s.keys.entry(name, e.name)] = all[i]
		}
	}
	if err := errors.Join(errs...); err != nil || slices.Contains(all, nil) {
		return nil, err
	}
	return all, nil
}

// A turn is a waiter's place in the queue.
type turn struct {
	pzxid      int64 // the queue's last change
	missing    bool  // its entry ended
	first      bool  // no entry is before it
	second     bool  // a single entry is before it
	before     entry // the last entry before it
	beforeThat entry // the last but one
}

// turnAt returns the place of the entry with an index, or of none with -1.
func turnAt(q queue, i int) turn {
	t := turn{missing: i < 0, first: i == 0, second: i == 1}
	if i > 0 {
		t.before = q[i-1]
	}
	if i > 1 {
		t.beforeThat = q[i-2]
	}
	return t
}

// place reads a waiter's place.
func (s *Store) place(ctx context.Context, l *link, rec record) (turn, error) {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	q, pzxid, err := s.read(ctx, l, rec.name)
	if err != nil {
		return turn{}, err
	}
	t := turnAt(q, q.place(rec.entry))
	t.pzxid = pzxid
	return t, nil
}

// granted notifies a client that its waiter holds the name. The client of a multi-lock is notified to
// retry instead. So is a client whose session may have ended.
func (s *Store) granted(in *inbox.Inbox, rec record, fence uint64, retry bool) {
	waits, certain := false, false
	until := s.clock.Check() + min(driver.WaiterTTL, rec.value.ttl())
	s.records.update(rec, func(now *record) {
		now.endWait(rec.wait)
		if waits = !now.held; !waits {
			return // a request came first
		}
		certain = !retry && now.session == rec.session && now.session.lasts(until)
		if certain {
			now.held, now.fence, now.expires = true, fence, until
		}
	})
	switch {
	case !waits:
	case certain:
		s.sweeper.wakeAt(until)
		in.Send(driver.Event{Kind: driver.EventGranted, Token: rec.token, Fence: fence, Ticket: rec.ticket})
	default:
		in.Send(driver.Event{Kind: driver.EventRetry, Token: rec.token})
	}
}
