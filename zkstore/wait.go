package zkstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
)

// watchGrant lets a waiter's client be notified of its grant. before is the entry before its own.
//
// An exclusive request holds the name when all entries before its own have left. So it watches the
// last of them, and a release wakes one waiter. A shared request can hold the name earlier, so it
// needs a watch of the queue, which this process needs only once.
func (s *Store) watchGrant(r driver.AcquireRequest, rec record, before entry) {
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
	l := rec.session.link
	retry := func() { in.Send(driver.Event{Kind: driver.EventRetry, Token: rec.token}) }
	pause := firstPause
	for ctx.Err() == nil {
		err := s.awaitLeave(ctx, l, rec.name, before)
		var t turn
		if err == nil {
			t, err = s.place(ctx, l, rec)
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
			before, pause = t.before, firstPause
		}
	}
}

// awaitLeave waits until an entry changes or leaves.
func (s *Store) awaitLeave(ctx context.Context, l *link, name string, before entry) error {
	short, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	fired, exists, err := l.gone(short, s.keys.entry(name, before.name))
	if err != nil || !exists {
		return err
	}
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A turn is a waiter's place in the queue.
type turn struct {
	pzxid   int64 // the queue's last change
	missing bool  // its entry ended
	first   bool  // no entry is before it
	second  bool  // a single entry is before it
	before  entry // the last entry before it
}

// place reads a waiter's place.
func (s *Store) place(ctx context.Context, l *link, rec record) (turn, error) {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	q, pzxid, err := s.read(ctx, l, rec.name)
	if err != nil {
		return turn{}, err
	}
	i := q.place(rec.entry)
	t := turn{pzxid: pzxid, missing: i < 0, first: i == 0, second: i == 1}
	if i > 0 {
		t.before = q[i-1]
	}
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
