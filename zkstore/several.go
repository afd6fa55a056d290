package zkstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

// acquireAll acquires several names. The entries in all queues are created in a single transaction,
// so they have the same place among all requests: two requests never wait for each other.
func (s *Store) acquireAll(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	recs, known := s.recordsOf(r)
	unusable := slices.ContainsFunc(recs, func(rec record) bool { return rec.ending || rec.entry.name == "" })
	switch {
	case known == 0:
		return s.acquireAllFirst(ctx, r)
	case known < len(recs) || unusable: // the token lost some of the names, or a reply
		return driver.AcquireReply{}, cmp.Or(s.endAll(ctx, recs), errAgain)
	default:
		return s.acquireAllAgain(ctx, r, recs)
	}
}

// recordsOf returns the records for all names in a request, and how many there are. The others have
// no number.
func (s *Store) recordsOf(r driver.AcquireRequest) (recs []record, known int) {
	for _, name := range r.Names() {
		rec, ok := s.records.get(name, r.Token)
		if ok {
			known++
		}
		recs = append(recs, rec)
	}
	return recs, known
}

// endAll deletes entries.
func (s *Store) endAll(ctx context.Context, recs []record) error {
	for _, rec := range recs {
		if rec.number == 0 {
			continue
		}
		if err := s.finish(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// acquireAllFirst sends the first request of a token.
func (s *Store) acquireAllFirst(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if isChosen(r) {
		adopted := false
		for _, name := range r.Names() {
			found, err := s.adopt(ctx, name, r.Token)
			if err != nil {
				return driver.AcquireReply{}, err
			}
			adopted = adopted || found
		}
		if adopted {
			return driver.AcquireReply{}, errAgain
		}
	}
	sent := s.clock.Check()
	unused := s.sizeOf(r)
	on, err := s.sessionFor(ctx, unused, leaseTTL(r))
	if err != nil {
		return driver.AcquireReply{}, err
	}
	defer func() { on.leave(unused) }() // each record uses it
	if !r.Queue {
		for _, name := range r.Names() {
			q, pzxid, err := s.readFresh(ctx, on.link, name)
			if err != nil {
				return driver.AcquireReply{}, onlyEnded(err)
			}
			if len(q) > 0 {
				return s.refuse(ctx, on.link, name, q, len(q), pzxid)
			}
		}
	}
	recs, rest, err := s.recordAll(r, on, sent+leaseTTL(r))
	unused = rest
	if err != nil {
		return driver.AcquireReply{}, err
	}
	if err := s.createAll(ctx, recs, on); err != nil {
		return driver.AcquireReply{}, s.noneAdded(ctx, recs, err)
	}
	return s.acquireAllAgain(ctx, r, recs)
}

// recordAll makes records for the entries of a request. They use their part of the session's place
// for the request. recordAll returns the size of the rest.
func (s *Store) recordAll(r driver.AcquireRequest, on *session, expires time.Duration) (recs []record, rest int, err error) {
	rest = s.sizeOf(r)
	for _, name := range r.Names() {
		rec := record{name: name, token: r.Token, session: on, value: newValue(r), expires: expires, severalNames: true}
		on.reuse()
		if !s.records.add(&rec) {
			on.leave(0)
			s.forgetAll(recs)
			return nil, rest, errAgain // another call did the same
		}
		recs, rest = append(recs, rec), rest-s.keys.size(name)
	}
	s.sweeper.wakeAt(expires)
	return recs, rest, nil
}

func (s *Store) forgetAll(recs []record) {
	for _, rec := range recs {
		s.forget(rec)
	}
}

// createAll adds the entries for all names.
func (s *Store) createAll(ctx context.Context, recs []record, on *session) error {
	var ops []any
	for _, rec := range recs {
		path := s.keys.queue(rec.name) + "/" + s.config.format.prefixOf(node{id: idOf(rec.token), weight: 1, limit: 1})
		ops = append(ops, &zk.CreateRequest{Path: path, Data: rec.value.bytes(), Acl: s.config.acl, Flags: zk.FlagEphemeral | zk.FlagSequence})
	}
	var replies []zk.MultiResponse
	var err error
	var late <-chan struct{}
	answered := s.requestBegins(recs...)
	defer func() { closeAfter(answered, late) }()
	for { // an empty queue's znode can end at any moment
		replies, late, err = callLate(ctx, on.link, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
		if !errors.Is(err, zk.ErrNoNode) {
			break
		}
		for _, rec := range recs {
			if err = on.makePath(ctx, s.keys.queue(rec.name), s.config.acl, true); err != nil {
				s.removeEmpty(on.link, namesOf(recs)...)
				return unsentError{err}
			}
		}
	}
	if err != nil {
		s.removeEmpty(on.link, namesOf(recs)...)
		return err
	}
	for i, reply := range replies {
		name := reply.String[strings.LastIndexByte(reply.String, '/')+1:]
		n, ok := parseNode(name)
		if !ok {
			return invalid("ZooKeeper created the znode %s, which has no sequence number", reply.String)
		}
		recs[i].entry = entry{n, name}
		if !s.records.update(recs[i], func(now *record) { now.entry = recs[i].entry }) {
			return errAgain
		}
		if n.seq >= lastSeq {
			err = fmt.Errorf("%w: %s", errNoNumbers, s.keys.queue(recs[i].name))
		}
	}
	return err
}

func namesOf(recs []record) (names []string) {
	for _, rec := range recs {
		names = append(names, rec.name)
	}
	return names
}

// noneAdded removes the records of entries that were not added. It returns errAgain if a session
// ended.
func (s *Store) noneAdded(ctx context.Context, recs []record, err error) error {
	var unsent unsentError
	switch {
	case errors.Is(err, errEnded):
		s.forgetAll(recs)
		return errAgain
	case errors.As(err, &unsent) || isRefusal(err):
		s.forgetAll(recs)
	case errors.Is(err, errNoNumbers):
		return cmp.Or(s.endAll(ctx, recs), err)
	case isBroken(err):
		return cmp.Or(s.endAll(ctx, recs), errAgain)
	}
	return err
}

// acquireAllAgain answers a request whose entries should exist.
func (s *Store) acquireAllAgain(ctx context.Context, r driver.AcquireRequest, recs []record) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	queues, pzxid, err := s.readAll(ctx, recs)
	if errors.Is(err, errEnded) || errors.Is(err, driver.ErrWrongType) {
		err = cmp.Or(s.endAll(ctx, recs), onlyEnded(err))
	}
	if err != nil {
		return driver.AcquireReply{}, err
	}
	blocked := -1
	for i, q := range queues {
		switch at := q.find(recs[i].entry.name); {
		case at < 0: // the request releases the others
			return driver.AcquireReply{}, cmp.Or(s.endAll(ctx, recs), errAgain)
		case at > 0 && blocked < 0:
			blocked = i
		}
	}
	if blocked < 0 {
		return s.holdAll(ctx, r, recs, s.fences.at(pzxid, 0), sent)
	}
	return s.waitForAll(ctx, r, recs, queues, blocked, pzxid, sent)
}

// onlyEnded returns errAgain for the end of a session.
func onlyEnded(err error) error {
	if errors.Is(err, errEnded) {
		return errAgain
	}
	return err
}

// readAll reads the queues of several entries, and the last change of any.
func (s *Store) readAll(ctx context.Context, recs []record) ([]queue, int64, error) {
	queues, errs := make([]queue, len(recs)), make([]error, len(recs))
	var mu sync.Mutex
	var last int64
	concurrentlyN(len(recs), func(i int) {
		read := s.read
		if recs[i].session == nil {
			read = s.readFresh
		}
		l, err := s.linkOf(ctx, recs[i])
		if err != nil {
			errs[i] = err
			return
		}
		q, pzxid, err := read(ctx, l, recs[i].name)
		mu.Lock()
		defer mu.Unlock()
		queues[i], errs[i], last = q, err, max(last, pzxid)
	})
	return queues, last, errors.Join(errs...)
}

// waitForAll answers a request that is not the first in all queues.
func (s *Store) waitForAll(ctx context.Context, r driver.AcquireRequest, recs []record, queues []queue, blocked int, pzxid int64, sent time.Duration) (driver.AcquireReply, error) {
	l, err := s.linkOf(ctx, recs[blocked])
	if err != nil {
		return driver.AcquireReply{}, err
	}
	place := func(i int) int { return queues[i].find(recs[i].entry.name) }
	reply, err := s.busy(ctx, l, recs[blocked].name, queues[blocked], place(blocked), pzxid)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	if !r.Queue {
		reply.Position = 0
		return reply, s.endAll(ctx, recs)
	}
	if err := s.markAll(ctx, recs, true); err != nil {
		return driver.AcquireReply{}, err
	}
	for i := range recs {
		if err := s.wait(ctx, r, &recs[i], sent); err != nil {
			return driver.AcquireReply{}, err
		}
		reply.Ticket = recs[i].ticket // the same for all
		if place(i) == 0 {
			continue
		}
		if i > blocked {
			other, err := s.busy(ctx, l, recs[i].name, queues[i], place(i), pzxid)
			if err != nil {
				return driver.AcquireReply{}, err
			}
			reply.Position = max(reply.Position, other.Position)
		}
		s.watchGrant(r, recs[i], queues[i], place(i))
	}
	return reply, nil
}

// markAll writes into the entries whether they wait for another name, if they do not say it yet.
func (s *Store) markAll(ctx context.Context, recs []record, waiting bool) error {
	var ops []any
	for i := range recs {
		if recs[i].value.Waiting != waiting {
			recs[i].value.Waiting = waiting
			ops = append(ops, &zk.SetDataRequest{Path: s.keys.entry(recs[i].name, recs[i].entry.name), Data: recs[i].value.bytes(), Version: -1})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	l, err := s.linkOf(ctx, recs[0])
	if err != nil {
		return onlyEnded(err)
	}
	_, err = l.multi(ctx, ops...)
	if errors.Is(err, zk.ErrNoNode) {
		return errAgain
	}
	if err != nil {
		return onlyEnded(err)
	}
	for _, rec := range recs {
		s.records.update(rec, func(now *record) { now.value = rec.value })
	}
	return nil
}

// holdAll answers a request whose entries are the first in all queues.
func (s *Store) holdAll(ctx context.Context, r driver.AcquireRequest, recs []record, fence uint64, sent time.Duration) (driver.AcquireReply, error) {
	if err := s.markAll(ctx, recs, false); err != nil {
		return driver.AcquireReply{}, err
	}
	for _, rec := range recs {
		if rec.held && rec.fence > 0 {
			fence = rec.fence // of an earlier reply
		}
	}
	for _, rec := range recs {
		if _, err := s.hold(ctx, rec, fence, leaseTTL(r), sent); err != nil {
			return driver.AcquireReply{}, err
		}
	}
	return driver.AcquireReply{Held: true, Fence: fence}, nil
}

// sizeOf is the size of the entries' paths for all names of a request.
func (s *Store) sizeOf(r driver.AcquireRequest) (size int) {
	for _, name := range r.Names() {
		size += s.keys.size(name)
	}
	return size
}
