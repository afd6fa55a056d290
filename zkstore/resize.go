package zkstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/go-zookeeper/zk"
)

// Resize implements driver.Resizer. The entry keeps its place in the queue.
func (s *Store) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := s.checkAcquire(r); err != nil {
		return driver.AcquireReply{}, err
	}
	ctx, cancel, err := s.beginTurn(ctx, "resize", r.Name, r.Token, r.Until)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	defer cancel()
	if err := s.checkTTL("resize", r.Name, r.TTL); err != nil {
		return driver.AcquireReply{}, err
	}
	reply, err := again(func() (driver.AcquireReply, error) { return s.resize(ctx, r) })
	if err != nil {
		return driver.AcquireReply{}, unavailable("resize", r.Name, err)
	}
	return reply, nil
}

// resize makes an attempt. It returns errAgain if the entry changed meanwhile.
func (s *Store) resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	rec, found, err := s.findOwn(ctx, r.Name, r.Token)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	l, err := s.linkOf(ctx, rec)
	if err != nil {
		return driver.AcquireReply{}, s.afterEnd(rec, err)
	}
	if !found || !rec.held || rec.entry.reserved {
		q, pzxid, err := s.readFresh(ctx, l, r.Name)
		if err != nil {
			return driver.AcquireReply{}, err
		}
		return s.refuse(ctx, l, r.Name, q, len(q), pzxid)
	}
	if rec.ending {
		return driver.AcquireReply{}, errEnding
	}
	if rec.number == 0 && !s.records.add(&rec) {
		return driver.AcquireReply{}, errAgain
	}
	if r.Weight <= rec.entry.weight && r.Limit >= rec.entry.limit && !r.Exclusive() {
		return s.shrink(ctx, r, rec, sent)
	}
	return s.grow(ctx, r, rec, sent)
}

// shrink changes a weight to one that is no larger. Nobody who leaves or joins meanwhile makes it too
// large. Others may join at the same time, so a shared lease keeps its fence: a new one would be
// larger than theirs.
func (s *Store) shrink(ctx context.Context, r driver.AcquireRequest, rec record, sent time.Duration) (driver.AcquireReply, error) {
	l, err := s.linkOf(ctx, rec)
	if err != nil {
		return driver.AcquireReply{}, s.afterEnd(rec, err)
	}
	q, pzxid, err := s.readFresh(ctx, l, rec.name)
	if err != nil {
		return driver.AcquireReply{}, s.afterEnd(rec, err)
	}
	i := q.find(rec.entry.name)
	if i < 0 || i >= q.granted() {
		return driver.AcquireReply{}, s.missing(rec)
	}
	if other, fits := q.fitsResized(i, r); !fits { // limits can differ
		return s.refuse(ctx, l, r.Name, queue{other}, 1, pzxid)
	}
	if rec.fence == 0 || rec.entry.exclusive() {
		rec.fence = s.fences.at(pzxid, i)
	}
	return s.writeWeight(ctx, r, rec, sent)
}

// grow changes a weight to a larger one. Meanwhile a barrier, an exclusive entry at the end, keeps
// others from joining the holders.
func (s *Store) grow(ctx context.Context, r driver.AcquireRequest, rec record, sent time.Duration) (driver.AcquireReply, error) {
	barrier, q, pzxid, err := s.addBarrier(ctx, r)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	l := barrier.session.link
	path := s.keys.entry(r.Name, barrier.entry.name)
	end := func() error {
		_, err := l.remove(ctx, path, -1)
		if err == nil {
			s.forget(barrier)
		} // otherwise the sweeper removes it
		return err
	}
	i := q.find(rec.entry.name)
	before := q[:max(q.find(barrier.entry.name), 0)]
	if i < 0 || i >= before.granted() {
		return driver.AcquireReply{}, cmp.Or(end(), errAgain)
	}
	other, fits := before.fitsResized(i, r)
	if !fits {
		reply, err := s.refuse(ctx, l, r.Name, queue{other}, 1, pzxid)
		return reply, cmp.Or(err, end())
	}
	if before.granted() > driver.MaxNames {
		return driver.AcquireReply{}, cmp.Or(end(), errManyHolders)
	}
	rec.fence = s.fences.at(pzxid, i)
	more := []any{&zk.DeleteRequest{Path: path, Version: -1}}
	for j, e := range before[:before.granted()] { // if one leaves, a waiter before the barrier can take its place
		if j != i {
			more = append(more, &zk.CheckVersionRequest{Path: s.keys.entry(r.Name, e.name), Version: -1})
		}
	}
	reply, err := s.writeWeight(ctx, r, rec, sent, more...)
	if err == nil {
		s.forget(barrier)
		return reply, nil
	}
	_ = end()
	return reply, err
}

// errManyHolders limits the size of a transaction.
var errManyHolders = invalid("more than %d holders: a lease beside them cannot get a larger weight", driver.MaxNames)

// addBarrier adds an exclusive entry at the end of a queue, and reads the queue.
func (s *Store) addBarrier(ctx context.Context, r driver.AcquireRequest) (record, queue, int64, error) {
	ttl := s.sessions.tick()
	on, err := s.sessionFor(ctx, s.keys.size(r.Name), ttl)
	if err != nil {
		return record{}, nil, 0, err
	}
	random := make([]byte, idLength/2)
	_, _ = rand.Read(random) // it never fails
	id := hex.EncodeToString(random)
	b := record{name: r.Name, token: "barrier-" + id, session: on, expires: s.clock.Check() + ttl}
	b.value = value{Token: b.token, Client: r.Client, TTL: milliseconds(ttl)}
	if !s.records.add(&b) {
		on.leave(s.keys.size(r.Name))
		return record{}, nil, 0, errAgain
	}
	s.sweeper.wakeAt(b.expires)
	created, err := s.create(ctx, &b, node{id: idOf(b.token), weight: 1, limit: 1}, true)
	if err != nil {
		return record{}, nil, 0, s.notAdded(ctx, b, err)
	}
	s.records.update(b, func(now *record) { now.entry = b.entry })
	q, pzxid, err := s.queueOf(r.Name, created.children, created.pzxid, nil)
	if err == nil && q.find(b.entry.name) < 0 {
		q, pzxid, err = s.read(ctx, on.link, r.Name)
	}
	return b, q, pzxid, err
}

// fitsResized reports whether a holder's new weight fits beside the other holders, each of which
// stays a holder. Otherwise it returns another holder.
func (q queue) fitsResized(i int, r driver.AcquireRequest) (other entry, fits bool) {
	granted := q.granted()
	held := r.Weight
	for j, e := range q[:granted] {
		if j != i {
			held += e.weight
			other = e
		}
	}
	if other.name == "" {
		return other, true
	}
	resized := slices.Clone(q)
	resized[i].weight, resized[i].limit = r.Weight, r.Limit
	return other, !r.Exclusive() && held <= r.Limit && resized.granted() >= granted
}

// writeWeight moves a holder's entry to a znode with another weight.
func (s *Store) writeWeight(ctx context.Context, r driver.AcquireRequest, rec record, sent time.Duration, more ...any) (driver.AcquireReply, error) {
	ttl := max(r.TTL, rec.expires-sent)
	if rec.session == nil {
		ttl = max(ttl, rec.value.ttl())
	}
	to, err := s.sessions.forTTL(ctx, ttl, s.keys.size(r.Name))
	if err != nil && !errors.Is(err, errTooLong) {
		return driver.AcquireReply{}, err
	}
	change := func(n *node, v *value) {
		n.weight, n.limit = r.Weight, r.Limit
		v.TTL, v.Fence = milliseconds(ttl), rec.fence
	}
	if err := s.moveTo(ctx, &rec, to, change, more...); err != nil {
		to.leave(s.keys.size(r.Name))
		return driver.AcquireReply{}, err
	}
	return driver.AcquireReply{Held: true, Fence: rec.fence}, s.extended(rec, ttl, rec.fence, sent)
}
