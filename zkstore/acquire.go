package zkstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/go-zookeeper/zk"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := s.checkAcquire(r); err != nil {
		return driver.AcquireReply{}, err
	}
	ctx, cancel, err := s.beginTurn(ctx, "acquire", r.Name, r.Token, r.Until)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	defer cancel()
	if err := s.checkTTL("acquire", r.Name, r.TTL); err != nil {
		return driver.AcquireReply{}, err
	}
	acquire := s.acquireOne
	if len(r.With) > 0 {
		acquire = s.acquireAll
	}
	reply, err := again(func() (driver.AcquireReply, error) { return acquire(ctx, r) })
	if err != nil {
		return driver.AcquireReply{}, unavailable("acquire", r.Name, err)
	}
	return reply, nil
}

func (s *Store) acquireOne(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	rec, ok := s.records.get(r.Name, r.Token)
	switch {
	case !ok:
		return s.acquireFirst(ctx, r)
	case rec.ending:
		return driver.AcquireReply{}, cmp.Or(s.finish(ctx, rec), errAgain)
	case rec.entry.name == "": // the reply to an earlier request was lost
		return driver.AcquireReply{}, cmp.Or(s.resolve(ctx, rec), errAgain)
	default:
		return s.acquireAgain(ctx, r, rec)
	}
}

// acquireFirst sends the first request of a token.
func (s *Store) acquireFirst(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if isChosen(r) {
		if found, err := s.adopt(ctx, r.Name, r.Token); err != nil || found {
			return driver.AcquireReply{}, cmp.Or(err, errAgain)
		}
	}
	sent := s.clock.Check()
	on, err := s.sessionFor(ctx, s.keys.size(r.Name), leaseTTL(r))
	if err != nil {
		return driver.AcquireReply{}, err
	}
	if !r.Queue {
		q, pzxid, err := s.readFresh(ctx, on.link, r.Name)
		if err != nil {
			on.leave(s.keys.size(r.Name))
			return driver.AcquireReply{}, onlyEnded(err)
		}
		if !q.fits(nodeOf(r)) {
			defer on.leave(s.keys.size(r.Name))
			return s.refuse(ctx, on.link, r.Name, q, len(q), pzxid)
		}
	}
	rec := record{name: r.Name, token: r.Token, session: on, value: newValue(r), expires: sent + leaseTTL(r)}
	if !s.records.add(&rec) {
		on.leave(s.keys.size(r.Name))
		return driver.AcquireReply{}, errAgain // another call did the same
	}
	s.sweeper.wakeAt(rec.expires)
	return s.enter(ctx, r, rec, sent)
}

// isChosen reports whether the application chose the token, so another process may have used it.
func isChosen(r driver.AcquireRequest) bool {
	c, ok := ownertoken.ClientOf(r.Token)
	return !ok || c.ID != r.Client
}

// nodeOf returns the node of a new entry.
func nodeOf(r driver.AcquireRequest) node {
	return node{id: idOf(r.Token), weight: r.Weight, limit: r.Limit}
}

// fits reports whether a new entry would hold the name at once.
func (q queue) fits(n node) bool {
	joined := append(slices.Clone(q), entry{node: n})
	return joined.granted() == len(joined)
}

// sessionFor returns a session for new entries, whose paths have a size. A lease that is longer than
// any session begins on a short one, and gets a persistent entry when it holds the name.
func (s *Store) sessionFor(ctx context.Context, size int, ttl time.Duration) (*session, error) {
	on, err := s.sessions.forTTL(ctx, ttl, size)
	if !errors.Is(err, errTooLong) {
		return on, err
	}
	tick, longest := s.sessions.bounds()
	return s.sessions.forTTL(ctx, min(waiterTTL, longest-slack(tick)), size)
}

// adopt makes a record for an entry that another process made. It returns false if there is none.
func (s *Store) adopt(ctx context.Context, name, token string) (bool, error) {
	found, ok, err := s.find(ctx, name, token)
	if err != nil || !ok || found.entry.reserved {
		return false, err
	}
	s.records.add(&found)
	return true, nil
}

// enter adds an entry to the queue, and reads the queue.
func (s *Store) enter(ctx context.Context, r driver.AcquireRequest, rec record, sent time.Duration) (driver.AcquireReply, error) {
	before, n := s.visits.get(r.Name), nodeOf(r)
	blind := n.exclusive() && before.watches(rec.session.link)
	created, err := s.create(ctx, &rec, n, !blind)
	if err != nil {
		return driver.AcquireReply{}, s.notAdded(ctx, rec, err)
	}
	rec.follows, rec.base = before.follows(rec.session.link, rec.entry.seq), s.fences.base.Load()
	if !s.records.update(rec, func(now *record) { now.entry, now.follows, now.base = rec.entry, rec.follows, rec.base }) {
		return driver.AcquireReply{}, errAgain
	}
	if fence, alone := s.aloneAfter(rec, before); blind && alone {
		fence, err := s.hold(ctx, rec, fence, leaseTTL(r), sent)
		return driver.AcquireReply{Held: err == nil, Fence: fence}, err
	}
	q, pzxid, err := s.queueOf(r.Name, created.children, created.pzxid, nil)
	if err == nil && q.find(rec.entry.name) < 0 { // the read overtook the write
		q, pzxid, err = s.read(ctx, rec.session.link, r.Name)
	}
	if errors.Is(err, driver.ErrWrongType) {
		return driver.AcquireReply{}, cmp.Or(errOf(s.end(ctx, rec)), err)
	}
	if err != nil {
		return driver.AcquireReply{}, s.afterEnd(rec, err)
	}
	return s.decide(ctx, r, rec, q, pzxid, sent)
}

// A creation is the answer to a request that adds an entry.
type creation struct {
	path     string
	children []string
	pzxid    int64
}

// lastSeq is the last sequence number that is used: those near 2^31 come again and again, so they say
// nothing about an order.
const lastSeq = 1<<31 - 1<<20

// errNoNumbers means that a queue was never empty for a very long time.
var errNoNumbers = errors.New("the sequence numbers of this znode are used up: let it be without children for some minutes, and ZooKeeper removes it")

// create adds an entry at the end of a queue, perhaps with a read of the queue in the same round trip.
func (s *Store) create(ctx context.Context, rec *record, n node, read bool) (creation, error) {
	parent := s.keys.queue(rec.name)
	path := parent + "/" + s.config.format.prefixOf(n)
	made := false
	var c creation
	var err error
	var late <-chan struct{}
	answered := s.requestBegins(*rec)
	rec.late = answered
	defer func() { closeAfter(answered, late) }()
	for { // an empty queue's znode can end at any moment
		c, late, err = callLate(ctx, rec.session.link, func(conn *zk.Conn) (c creation, err error) {
			if !read {
				c.path, err = conn.Create(path, rec.value.bytes(), zk.FlagEphemeral|zk.FlagSequence, s.config.acl)
				return c, err
			}
			queue := make(chan creation, 1)
			go func() { // it is sent after the create, because a new goroutine starts later
				names, stat, err := conn.Children(parent)
				if err != nil {
					stat = &zk.Stat{}
				}
				queue <- creation{children: names, pzxid: stat.Pzxid}
			}()
			path, err := conn.Create(path, rec.value.bytes(), zk.FlagEphemeral|zk.FlagSequence, s.config.acl)
			c = <-queue
			c.path = path
			return c, err
		})
		if !errors.Is(err, zk.ErrNoNode) {
			break
		}
		made = true
		if err = rec.session.makePath(ctx, parent, s.config.acl, true); err != nil {
			err = unsentError{err}
			break
		}
	}
	if err != nil {
		if made {
			s.removeEmpty(rec.session.link, rec.name)
		}
		return creation{}, err
	}
	name := c.path[strings.LastIndexByte(c.path, '/')+1:]
	n, ok := parseNode(name)
	if !ok {
		return creation{}, invalid("ZooKeeper created the znode %s, which has no sequence number", c.path)
	}
	rec.entry = entry{n, name}
	if n.seq >= lastSeq {
		return creation{}, fmt.Errorf("%w: %s", errNoNumbers, parent)
	}
	return c, nil
}

// requestBegins records that a request to add entries begins: whoever ends them waits until the
// channel is closed.
func (s *Store) requestBegins(recs ...record) chan struct{} {
	answered := make(chan struct{})
	for _, rec := range recs {
		s.records.change(rec, func(now *record) { now.late = answered })
	}
	return answered
}

// closeAfter closes a channel after a late answer, if there is one.
func closeAfter(answered chan struct{}, late <-chan struct{}) {
	if late == nil {
		close(answered)
		return
	}
	go func() { <-late; close(answered) }()
}

// removeEmpty deletes the znodes of empty queues in the background. ZooKeeper keeps a container that
// never had a child.
func (s *Store) removeEmpty(l *link, names ...string) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), driver.OperationTimeout)
		defer cancel()
		for _, name := range names {
			_, _ = l.remove(ctx, s.keys.queue(name), -1) // it fails if the queue is not empty
		}
	}()
}

// notAdded removes the record of an entry that no request added. It returns errAgain if a session
// ended.
func (s *Store) notAdded(ctx context.Context, rec record, err error) error {
	var unsent unsentError
	switch {
	case errors.Is(err, errEnded): // and the entry with it
		s.forget(rec)
		return errAgain
	case errors.As(err, &unsent) || isRefusal(err):
		s.forget(rec)
		return err
	case errors.Is(err, errNoNumbers):
		return cmp.Or(errOf(s.end(ctx, rec)), err)
	case isBroken(err):
		return cmp.Or(s.resolve(ctx, rec), errAgain)
	}
	return err
}

// resolve finds the entry of an acquire that got no answer. If there is none, it removes the record.
func (s *Store) resolve(ctx context.Context, rec record) error {
	e, found, err := s.locate(ctx, rec)
	switch {
	case err != nil:
		return err
	case !found:
		s.forget(rec)
		return nil
	}
	s.records.update(rec, func(now *record) { now.entry, now.late = e, nil })
	return nil
}

// locate finds the entry of an acquire that got no answer. The session's requests take effect in
// their order, so the read knows the outcome.
func (s *Store) locate(ctx context.Context, rec record) (entry, bool, error) {
	if rec.late != nil {
		select {
		case <-rec.late:
		case <-ctx.Done():
			return entry{}, false, context.Cause(ctx)
		}
	}
	q, _, err := s.readFresh(ctx, rec.session.link, rec.name)
	if errors.Is(err, errEnded) {
		return entry{}, false, nil
	}
	if err != nil && !errors.Is(err, driver.ErrWrongType) {
		return entry{}, false, err
	}
	i := q.findID(idOf(rec.token))
	if i < 0 {
		return entry{}, false, nil
	}
	return q[i], true, nil
}

// acquireAgain answers a repeated request.
func (s *Store) acquireAgain(ctx context.Context, r driver.AcquireRequest, rec record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	l, err := s.linkOf(ctx, rec)
	if err != nil {
		return driver.AcquireReply{}, s.afterEnd(rec, err)
	}
	read := s.read
	if rec.session == nil {
		read = s.readFresh
	}
	q, pzxid, err := read(ctx, l, r.Name)
	if err != nil {
		return driver.AcquireReply{}, s.afterEnd(rec, err)
	}
	i := q.find(rec.entry.name)
	if i < 0 { // it ended, or another process moved it
		s.forget(rec)
		_, err := s.adopt(ctx, r.Name, r.Token)
		return driver.AcquireReply{}, cmp.Or(err, errAgain)
	}
	return s.decide(ctx, r, rec, q, pzxid, sent)
}

// afterEnd removes the record of an entry whose session ended. Then it returns errAgain.
func (s *Store) afterEnd(rec record, err error) error {
	if errors.Is(err, errEnded) {
		s.forget(rec)
		return errAgain
	}
	return err
}

// linkOf returns the link on which an entry's requests are sent: its own session's, if it has one.
func (s *Store) linkOf(ctx context.Context, rec record) (*link, error) {
	if rec.session != nil {
		return rec.session.link, nil
	}
	return s.sessions.get(ctx)
}

// decide answers a request whose entry is in the queue.
func (s *Store) decide(ctx context.Context, r driver.AcquireRequest, rec record, q queue, pzxid int64, sent time.Duration) (driver.AcquireReply, error) {
	i := q.find(rec.entry.name)
	if i < q.granted() {
		fence, err := s.hold(ctx, rec, s.fences.at(pzxid, i), leaseTTL(r), sent)
		return driver.AcquireReply{Held: err == nil, Fence: fence}, err
	}
	l, err := s.linkOf(ctx, rec)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	if !r.Queue {
		return s.withdraw(ctx, l, rec, q, i, pzxid)
	}
	if err := s.wait(ctx, r, &rec, sent); err != nil {
		return driver.AcquireReply{}, err
	}
	s.watchGrant(r, rec, q, i) // early: the holder may leave soon
	reply, err := s.busy(ctx, l, r.Name, q, i, pzxid)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	reply.Ticket = rec.ticket
	return reply, nil
}

// withdraw removes the entry of a try that does not hold the name. If those before it left meanwhile,
// it may hold the name, so withdraw returns errAgain: others may have seen it as the holder.
func (s *Store) withdraw(ctx context.Context, l *link, rec record, q queue, i int, pzxid int64) (driver.AcquireReply, error) {
	reply, err := s.refuse(ctx, l, rec.name, q, i, pzxid)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	if rec.session == nil {
		_, err = s.end(ctx, rec)
		return reply, err
	}
	ops := []any{&zk.DeleteRequest{Path: s.keys.entry(rec.name, rec.entry.name), Version: -1}}
	for _, e := range q.blockers(i) {
		ops = append(ops, &zk.CheckVersionRequest{Path: s.keys.entry(rec.name, e.name), Version: -1})
	}
	_, err = l.multi(ctx, ops...)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return driver.AcquireReply{}, errAgain
	case err != nil:
		return driver.AcquireReply{}, s.afterEnd(rec, err)
	}
	s.forget(rec)
	return reply, nil
}

// wait records a waiter, and that its client is alive. An entry of another process moves to a session
// of this process.
func (s *Store) wait(ctx context.Context, r driver.AcquireRequest, rec *record, sent time.Duration) error {
	if rec.session == nil || rec.session.hasEnded() {
		to, err := s.sessionFor(ctx, s.keys.size(rec.name), leaseTTL(r))
		if err != nil {
			return err
		}
		if err := s.move(ctx, rec, to, nil); err != nil {
			return err
		}
	}
	if rec.ticket == 0 {
		stat, err := s.statOf(ctx, *rec)
		if err != nil {
			return err
		}
		rec.ticket = uint64(stat.Czxid) // in the order of all queues, for a multi-lock
	}
	until := sent + waiterTTL
	if !s.records.update(*rec, func(now *record) { now.expires, now.ticket = until, rec.ticket }) {
		return errAgain
	}
	s.sweeper.wakeAt(until)
	return nil
}

// statOf reads what ZooKeeper knows about an entry. It returns errAgain if the entry ended or moved.
func (s *Store) statOf(ctx context.Context, rec record) (*zk.Stat, error) {
	_, stat, err := rec.session.get(ctx, s.keys.entry(rec.name, rec.entry.name))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, errAgain
	}
	return stat, s.afterEnd(rec, err)
}

// refuse describes the queue to a request that does not wait. i is its entry's index, or the queue's
// length if it has none.
func (s *Store) refuse(ctx context.Context, l *link, name string, q queue, i int, pzxid int64) (driver.AcquireReply, error) {
	reply, err := s.busy(ctx, l, name, q, i, pzxid)
	reply.Position = 0
	return reply, err
}

// busy describes the queue to a waiter, whose entry has index i. It returns errAgain if a holder's
// lease was over.
func (s *Store) busy(ctx context.Context, l *link, name string, q queue, i int, pzxid int64) (driver.AcquireReply, error) {
	reply := driver.AcquireReply{Name: name, Fence: s.fences.upTo(pzxid), Remaining: driver.WaiterTTL}
	holders := q[:q.granted()]
	reply.Position = i - len(holders) + 1
	if err := s.reapAll(ctx, l, name, holders[:min(len(holders), i)]); err != nil {
		return reply, err
	}
	if len(holders) == 0 {
		return reply, nil
	}
	data, stat, err := l.get(ctx, s.keys.entry(name, holders[0].name))
	switch {
	case errors.Is(err, zk.ErrNoNode): // it left just now
		return reply, errAgain
	case err != nil:
		return reply, err
	}
	v, ok := parseValue(data)
	switch {
	case !ok || holders[0].foreign():
		reply.Holder = holders[0].name
		if stat.EphemeralOwner == 0 {
			reply.Remaining = -1
		}
		return reply, nil
	case v.Waiting:
		reply.Position++
		return reply, nil
	}
	reply.Holder, reply.Reserved, reply.Remaining = v.Token, holders[0].reserved, v.ttl()
	if holders[0].persistent {
		reply.Remaining, err = s.remainingOf(ctx, l, v, stat)
		reply.Remaining = max(reply.Remaining, time.Millisecond)
	}
	return reply, err
}
