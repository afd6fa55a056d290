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
	node          *node
	acquisition   *acquisition
	key           queueKey
	sending       bool
	pending       []*delivery // waiting for the one that is being sent
	newest        *delivery   // the last one enqueued
	undelivered   int         // number of deliveries to be redelivered
	pendingCancel *delivery   // a queued delivery that cancels the acquisition
	lateUntil     time.Time   // until then a request without an answer may still arrive
	toRepeat      *delivery   // to be repeated after that

	state          state
	err            error     // of the last request, nil if it succeeded
	voteRound      uint64    // in which the last request was sent
	fence          uint64    // of the vote if held; if waiting, the largest that the node had issued
	storeID        string    // store ID of the node
	notifiedFence  uint64    // of a notification that came while a request was being sent
	notifiedBy     string    // store ID in that notification
	byNotification bool      // the vote came as a notification, so its TTL is that of a hand-off
	requestedAt    time.Time // when the request of the last answer was sent
	uncertainUntil time.Time // until then a message may still arrive and remove the vote
	resizeUntil    time.Time // until then a resize without an answer may still arrive
	resizeWeight   int       // weight in that resize; 0 if there are several
	mode           mode      // how the node may hold the token

	holder    holderID
	remaining time.Duration
	position  int
}

// A mode is the weight and limit of a token. The zero mode means that the token is not on
// the node.
type mode struct{ weight, limit int }

var unknownMode = mode{-1, -1}

type state int

const (
	unknown state = iota
	held
	waiting
)

// A delivery is one message in a nodeQueue. Its answer is processed and the next delivery
// is started in one step under the mutex, so nothing happens in between.
type delivery struct {
	queue     *nodeQueue
	voteRound uint64    // of the acquisition; the delivery expires when a later round starts
	until     time.Time // it also expires at this time
	sentAt    time.Time

	begin           func() bool                     // reports whether the message is still wanted when its turn comes; nil: it is
	send            func() error                    // runs without the mutex
	end             func(err error) (notify func()) // records the answer, or nil; calls what it returns without the mutex
	endsAcquisition bool                            // it ends the acquisition
	onCancelled     []func(error)                   // called after a cancel
	onRedelivered   func(answered bool)             // reports to redeliver; nil if this is not a redelivery
}

// enqueue adds a delivery behind those that are pending for the node. If the node cannot
// be reached, it is redelivered later, but expires after maxAge. The caller holds s.mu.
func (s *Store) enqueue(nq *nodeQueue, maxAge time.Duration, d *delivery) {
	d.queue, d.voteRound, d.until = nq, nq.acquisition.voteRound, time.Now().Add(maxAge)
	nq.newest = d
	for r := range s.renewals {
		r.notLost[nq.key] = errUnderWay
	}
	s.insert(d)
}

// insert appends a delivery to its queue, and starts the queue if it is idle. The caller
// holds s.mu.
func (s *Store) insert(d *delivery) {
	nq := d.queue
	nq.pending = append(nq.pending, d)
	if nq.sending {
		return
	}
	if first := s.nextDelivery(nq); first != nil {
		nq.sending = true
		go s.deliver(nq, first)
	}
}

// nextDelivery removes and returns the next delivery that is still wanted, or nil. The
// caller holds s.mu.
func (s *Store) nextDelivery(nq *nodeQueue) *delivery {
	for len(nq.pending) > 0 {
		d := nq.pending[0]
		if nq.pending = nq.pending[1:]; nq.pendingCancel == d {
			nq.pendingCancel = nil
		}
		if !d.expired() && (d.begin == nil || d.begin()) {
			d.sentAt = time.Now()
			return d
		}
		d.report(true)
	}
	nq.sending = false
	s.removeIfDone(nq.acquisition)
	return nil
}

func (s *Store) deliver(nq *nodeQueue, d *delivery) {
	for d != nil {
		err := d.send()
		notify := func() {}
		s.mu.Lock()
		if d.end != nil {
			notify = d.end(err)
		}
		again := unanswered(err) || d.endsAcquisition && errors.Is(err, driver.ErrUnavailable) // a refusal may be temporary, too
		switch d.report(!again); {
		case again:
			s.redeliverLater(d)
		case d.endsAcquisition:
			s.repeatLater(d)
		}
		d = s.nextDelivery(nq)
		s.mu.Unlock()
		notify()
	}
}

func (d *delivery) report(answered bool) {
	if d.onRedelivered != nil {
		d.onRedelivered(answered)
		d.onRedelivered = nil
	}
}

// expired reports whether a delivery is obsolete. The caller holds s.mu.
func (d *delivery) expired() bool {
	return d.voteRound != d.queue.acquisition.voteRound || !time.Now().Before(d.until)
}

// unanswered reports whether err means that the node gave no answer, and may give one
// later.
func unanswered(err error) bool {
	var u *driver.UnavailableError
	return errors.As(err, &u) && !u.Refused
}

// slack is how long after its Until a request may still be served.
const slack = 100 * time.Millisecond

// recordUnanswered records that a request got no answer. The caller holds s.mu.
func (nq *nodeQueue) recordUnanswered(until time.Time) {
	nq.lateUntil = later(nq.lateUntil, until.Add(slack))
}

// distrustUntil invalidates votes that were requested before until. The caller holds
// s.mu.
func (nq *nodeQueue) distrustUntil(until time.Time) {
	nq.uncertainUntil = later(nq.uncertainUntil, until)
}

// recordCancel records the result of a message that ends the acquisition and is valid
// until then. A message without an answer may arrive when the token is in use again. The
// caller holds s.mu.
func (nq *nodeQueue) recordCancel(sent, until time.Time, err error) {
	switch {
	case err != nil:
		nq.distrustUntil(until.Add(slack))
		if nq.mode == (mode{}) {
			nq.mode = unknownMode
		}
	case !sent.Before(nq.lateUntil):
		nq.mode = mode{}
	}
	nq.distrustUntil(nq.resizeUntil)
}

// mayHaveOtherMode reports whether a node may hold a token with another weight than
// wanted, because the token was used before. The node would keep that weight, and a
// reader's vote is no vote for a writer. The caller holds s.mu.
func (nq *nodeQueue) mayHaveOtherMode(wanted mode) bool {
	if nq.mode == wanted {
		return false
	}
	nq.distrustUntil(nq.lateUntil)
	if nq.mode == (mode{}) && !time.Now().Before(nq.lateUntil) {
		nq.mode = wanted
		return false
	}
	return true
}

// isUncertain reports whether a node's vote does not count, because an earlier message
// may have arrived after it and removed it.
func (nq *nodeQueue) isUncertain() bool { return nq.requestedAt.Before(nq.uncertainUntil) }

// isIdle reports whether the node has answered everything and no earlier message can
// still arrive. The caller holds s.mu.
func (nq *nodeQueue) isIdle() bool {
	return !nq.sending && len(nq.pending) == 0 && nq.undelivered == 0 && !time.Now().Before(nq.lateUntil)
}

// repeatLater sends a delivery that ended the acquisition once more, if a request without
// an answer may have arrived after it or may still arrive. The end must be the last
// message that the node receives for the acquisition. The caller holds s.mu.
func (s *Store) repeatLater(d *delivery) {
	nq := d.queue
	if !d.sentAt.Before(nq.lateUntil) {
		return
	}
	if nq.toRepeat == nil {
		nq.undelivered++
		s.scheduleRepeat(nq)
	}
	nq.toRepeat = d
}

// scheduleRepeat inserts the delivery to be repeated when no earlier request can arrive
// after it.
func (s *Store) scheduleRepeat(nq *nodeQueue) {
	time.AfterFunc(max(time.Until(nq.lateUntil), 0)+nq.acquisition.jitter(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if time.Until(nq.lateUntil) > 0 {
			s.scheduleRepeat(nq)
			return
		}
		d := nq.toRepeat
		nq.undelivered--
		nq.toRepeat, d.until = nil, later(d.until, time.Now().Add(operationTimeout))
		s.insert(d)
	})
}
