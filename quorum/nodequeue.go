package quorum

import (
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A lane is one node's side of a claim. What is sent down a lane goes one after another:
// a release that overtook an acquire would leave the node taken, and one that came late
// would free it for somebody else. Its fields are guarded by the Store's mutex.
type nodeQueue struct {
	node  *node
	claim *acquisition
	at    lanekey
	busy  bool
	next  []*delivery // to be done after what is under way
	last  *delivery   // that was put there
	owed  int         // debts
	undo  *delivery   // that is to undo the claim, and has not begun
	late  time.Time   // until then a question that was not answered may yet arrive,
	final *delivery   // and then this is to follow it

	state state
	err   error     // of the last question, if it failed
	round uint64    // in which that was put
	fence uint64    // if held; if it waits, the largest that the node knew of
	id    string    // which store it is
	grant uint64    // the fence of a push that came while a question was under way
	by    string    // and which store sent it
	push  bool      // it is held by a push: for as long as a hand-off only
	asked time.Time // when the last answer was asked for
	doubt time.Time // until then what was sent may yet arrive, and take the vote away
	swing time.Time // until then a reweigh that was not answered may yet arrive,
	swung int       // to this weight
	share mode      // as which the node may have the token

	holder    string
	remaining time.Duration
	position  int
}

// A share is how much a token holds.
type mode struct{ weight, limit int }

var unclear = mode{-1, -1}

type state int

const (
	unknown state = iota
	held
	waits
)

// An errand is something sent down a lane. What follows from its answer, and whether the
// next one is still wanted, is decided in one step: nobody comes between.
type delivery struct {
	lane  *nodeQueue
	round uint64    // of the claim: it is void in a later one,
	until time.Time // and then
	sent  time.Time

	begin func() bool                   // whether it is still wanted, now that its turn has come; nil: it is
	send  func() error                  // without the mutex
	end   func(err error) (tell func()) // notes the answer; returns what to do without the mutex; or nil
	ends  bool                          // it ends the claim
	undo  []func(error)                 // whom it tells, if it undoes the claim
	paid  func(answered bool)           // tells who pays a debt; or nil
}

// put sends something down a lane, after what is under way there: now, or when the node
// can be reached, but not after so long. The caller holds s.mu.
func (s *Store) enqueue(l *nodeQueue, patience time.Duration, e *delivery) {
	e.lane, e.round, e.until = l, l.claim.round, time.Now().Add(patience)
	l.last = e
	for r := range s.renewals {
		r.notes[l.at] = errUnderWay
	}
	s.insert(e)
}

// line puts an errand at the end of its lane. The caller holds s.mu.
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

// turn returns what is sent down a lane next, or nil. The caller holds s.mu.
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
		again := mayPass(err) || e.ends && errors.Is(err, driver.ErrUnavailable) // a refusal may pass, too
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

// void reports whether nobody wants an errand any more. The caller holds s.mu.
func (e *delivery) void() bool {
	return e.round != e.lane.claim.round || !time.Now().Before(e.until)
}

// mayPass reports whether a node did not answer, and may later.
func mayPass(err error) bool {
	var u *driver.UnavailableError
	return errors.As(err, &u) && !u.Refused
}

// slack is how much later than its Until a question may still be served.
const slack = 100 * time.Millisecond

// missed notes that a question was not answered. The caller holds s.mu.
func (l *nodeQueue) recordUnanswered(until time.Time) { l.late = later(l.late, until.Add(slack)) }

// distrust has a node's vote not count if it was asked for before then. The caller holds
// s.mu.
func (l *nodeQueue) distrustUntil(until time.Time) { l.doubt = later(l.doubt, until) }

// undone notes that what ends the claim was sent, valid until then, and what became of it.
// What was not answered may arrive when the token is in use again. The caller holds s.mu.
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

// clashes reports whether a node may have a token for another weight than is wanted now,
// because the token was in use before. It would go on with that: a reader's vote is none
// for a writer. The caller holds s.mu.
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

// doubtful reports whether a node's vote does not count: what was sent before may have
// arrived after it, and taken it away.
func (l *nodeQueue) isDoubtful() bool { return l.asked.Before(l.doubt) }

// settled reports whether the node has answered all, and nothing can arrive any more. The
// caller holds s.mu.
func (l *nodeQueue) isSettled() bool {
	return !l.busy && len(l.next) == 0 && l.owed == 0 && !time.Now().Before(l.late)
}

// repeat sends what ended a claim last once more, if a question that was not answered may
// have arrived after it, or may yet: it must be the last that the node hears of the claim.
// The caller holds s.mu.
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

// await sends a lane's final errand when no question can arrive after it.
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
