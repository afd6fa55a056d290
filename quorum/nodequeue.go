package quorum

import (
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A nodeQueue is one node's part of an acquisition: its deliveries and the node's last
// answer. Deliveries are sent one after another. A release that overtook an acquire would
// leave the node locked, and a late release could release the lock of another owner. The
// Store's mutex guards its fields.
type nodeQueue struct {
	node  *node
	claim *acquisition
	at    lanekey
	busy  bool
	next  []*delivery // waiting for the one that is being sent
	last  *delivery   // the last one enqueued
	owed  int         // number of deliveries to be redelivered
	undo  *delivery   // a queued delivery that cancels the acquisition
	late  time.Time   // until then a request without an answer may still arrive
	final *delivery   // to be repeated after that

	state state
	err   error     // of the last request, nil if it succeeded
	round uint64    // in which the last request was sent
	fence uint64    // of the vote if held; if waiting, the largest that the node had issued
	id    string    // store ID of the node
	grant uint64    // of a notification that came while a request was being sent
	by    string    // store ID in that notification
	push  bool      // the vote came as a notification, so its TTL is that of a hand-off
	asked time.Time // when the request of the last answer was sent
	doubt time.Time // until then a message may still arrive and remove the vote
	swing time.Time // until then a resize without an answer may still arrive
	swung int       // weight in that resize; 0 if there are several
	share mode      // how the node may hold the token

	holder    string
	remaining time.Duration
	position  int
}

// A mode is the weight and limit of a token. The zero mode means that the node does not
// know the token.
type mode struct{ weight, limit int }

var unclear = mode{-1, -1}

type state int

const (
	unknown state = iota
	held
	waits
)

// A delivery is one message in a nodeQueue. Its answer is processed and the next delivery
// is started in one step under the mutex, so nothing happens in between.
type delivery struct {
	lane  *nodeQueue
	round uint64    // of the acquisition; the delivery expires when a later round starts
	until time.Time // it also expires at this time
	sent  time.Time

	begin func() bool                   // reports whether the message is still wanted when its turn comes; nil: it is
	send  func() error                  // runs without the mutex
	end   func(err error) (tell func()) // records the answer, or nil; calls what it returns without the mutex
	ends  bool                          // it ends the acquisition
	undo  []func(error)                 // called after a cancel
	paid  func(answered bool)           // reports to redeliver; nil if this is not a redelivery
}

// enqueue adds a delivery behind those that are pending for the node. If the node cannot
// be reached, it is redelivered later, but expires after maxAge. The caller holds s.mu.
func (s *Store) enqueue(l *nodeQueue, patience time.Duration, e *delivery) {
	e.lane, e.round, e.until = l, l.claim.round, time.Now().Add(patience)
	l.last = e
	for r := range s.renewals {
		r.notes[l.at] = errUnderWay
	}
	s.insert(e)
}

// insert appends a delivery to its queue, and starts the queue if it is idle. The caller
// holds s.mu.
func (s *Store) insert(e *delivery) {
	l := e.lane
	l.next = append(l.next, e)
	if l.busy {
		return
	}
	if first := s.next(l); first != nil {
		l.busy = true
		go s.run(l, first)
	}
}

// nextDelivery removes and returns the next delivery that is still wanted, or nil. The
// caller holds s.mu.
func (s *Store) next(l *nodeQueue) *delivery {
	for len(l.next) > 0 {
		e := l.next[0]
		if l.next = l.next[1:]; l.undo == e {
			l.undo = nil
		}
		if !e.void() && (e.begin == nil || e.begin()) {
			e.sent = time.Now()
			return e
		}
		e.report(true)
	}
	l.busy = false
	s.forget(l.claim)
	return nil
}

func (s *Store) run(l *nodeQueue, e *delivery) {
	for e != nil {
		err := e.send()
		tell := func() {}
		s.mu.Lock()
		if e.end != nil {
			tell = e.end(err)
		}
		again := mayPass(err) || e.ends && errors.Is(err, driver.ErrUnavailable) // a refusal may be temporary, too
		switch e.report(!again); {
		case again:
			s.deliverLater(e)
		case e.ends:
			s.repeat(e)
		}
		e = s.next(l)
		s.mu.Unlock()
		tell()
	}
}

func (e *delivery) report(answered bool) {
	if e.paid != nil {
		e.paid(answered)
		e.paid = nil
	}
}

// expired reports whether a delivery is obsolete. The caller holds s.mu.
func (e *delivery) void() bool {
	return e.round != e.lane.claim.round || !time.Now().Before(e.until)
}

// unanswered reports whether err means that the node gave no answer, and may give one
// later.
func mayPass(err error) bool {
	var u *driver.UnavailableError
	return errors.As(err, &u) && !u.Refused
}

// slack is how long after its Until a request may still be served.
const slack = 100 * time.Millisecond

// recordUnanswered records that a request got no answer. The caller holds s.mu.
func (l *nodeQueue) recordUnanswered(until time.Time) { l.late = later(l.late, until.Add(slack)) }

// distrustUntil invalidates votes that were requested before until. The caller holds
// s.mu.
func (l *nodeQueue) distrustUntil(until time.Time) { l.doubt = later(l.doubt, until) }

// recordCancel records the result of a message that ends the acquisition and is valid
// until then. A message without an answer may arrive when the token is in use again. The
// caller holds s.mu.
func (l *nodeQueue) recordCancel(sent, until time.Time, err error) {
	switch {
	case err != nil:
		l.distrustUntil(until.Add(slack))
		if l.share == (mode{}) {
			l.share = unclear
		}
	case !sent.Before(l.late):
		l.share = mode{}
	}
	l.distrustUntil(l.swing)
}

// mayHaveOtherMode reports whether a node may hold a token with another weight than
// wanted, because the token was used before. The node would keep that weight, and a
// reader's vote is no vote for a writer. The caller holds s.mu.
func (l *nodeQueue) clashes(wanted mode) bool {
	if l.share == wanted {
		return false
	}
	l.distrustUntil(l.late)
	if l.share == (mode{}) && !time.Now().Before(l.late) {
		l.share = wanted
		return false
	}
	return true
}

// isUncertain reports whether a node's vote does not count, because an earlier message
// may have arrived after it and removed it.
func (l *nodeQueue) isDoubtful() bool { return l.asked.Before(l.doubt) }

// isIdle reports whether the node has answered everything and no earlier message can
// still arrive. The caller holds s.mu.
func (l *nodeQueue) isSettled() bool {
	return !l.busy && len(l.next) == 0 && l.owed == 0 && !time.Now().Before(l.late)
}

// repeatLater sends a delivery that ended the acquisition once more, if a request without
// an answer may have arrived after it or may still arrive. The end must be the last
// message that the node receives for the acquisition. The caller holds s.mu.
func (s *Store) repeat(e *delivery) {
	l := e.lane
	if !e.sent.Before(l.late) {
		return
	}
	if l.final == nil {
		l.owed++
		s.await(l)
	}
	l.final = e
}

// scheduleRepeat inserts the delivery to be repeated when no earlier request can arrive
// after it.
func (s *Store) await(l *nodeQueue) {
	time.AfterFunc(max(time.Until(l.late), 0)+l.claim.spread(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if time.Until(l.late) > 0 {
			s.await(l)
			return
		}
		e := l.final
		l.owed--
		l.final, e.until = nil, later(e.until, time.Now().Add(operation))
		s.insert(e)
	})
}
