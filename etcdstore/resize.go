package etcdstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Resize implements driver.Resizer. The entry keeps its place in the queue.
func (s *Store) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := checkAcquire(r); err != nil {
		return driver.AcquireReply{}, err
	}
	ctx, cancel, err := s.beginTurn(ctx, "resize", r.Name, r.Token, r.Until)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	defer cancel()
	reply, err := again(func() (driver.AcquireReply, error) { return s.resize(ctx, r) })
	if err != nil {
		return driver.AcquireReply{}, unavailable("resize", r.Name, err)
	}
	return reply, nil
}

// resize makes an attempt. It returns errAgain if the queue changed meanwhile.
func (s *Store) resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	sent := s.clock.Check()
	q, revision, err := s.read(ctx, r.Name)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	blocked := q
	if i := q.holder(r.Token); i >= 0 && !q[i].Reserved {
		other, fits := q.fitsResized(i, r)
		if fits {
			return s.writeWeight(ctx, r, q, i, revision, sent)
		}
		blocked = queue{other}
	}
	return s.refuse(ctx, r.Name, blocked, len(blocked), revision), nil
}

// fitsResized reports whether a holder's new weight fits beside the other holders, each of which
// stays a holder. Otherwise it returns another holder.
func (q queue) fitsResized(i int, r driver.AcquireRequest) (other entry, fits bool) {
	granted := q.granted()
	held := r.Weight
	for j, e := range q[:granted] {
		if j != i {
			held += e.Weight
			other = e
		}
	}
	if other.key == "" {
		return other, true
	}
	resized := slices.Clone(q)
	resized[i].Weight, resized[i].Limit = r.Weight, r.Limit
	return other, !r.Exclusive() && held <= r.Limit && resized.granted() >= granted
}

// errManyHolders is the limit of a transaction in etcd.
var errManyHolders = fmt.Errorf("%w: more than %d holders: a lease beside them cannot get a larger weight", driver.ErrInvalid, driver.MaxNames)

// writeWeight writes an entry's new weight. If the weight is no larger, others can join between the
// read and the write, so a shared lease keeps its fence: a new one would be larger than theirs.
func (s *Store) writeWeight(ctx context.Context, r driver.AcquireRequest, q queue, i int, revision int64, sent time.Duration) (driver.AcquireReply, error) {
	rec, err := s.recordOf(r, q[i])
	if err != nil {
		return driver.AcquireReply{}, err
	}
	known := s.fences.of(q[i])
	if rec.held {
		known = max(known, rec.fence)
	}
	conditions := []clientv3.Cmp{unchanged(q[i].key, q[i].changed)}
	if r.Weight > q[i].Weight || r.Limit < q[i].Limit || r.Exclusive() || known == 0 {
		known = 0
		if q.granted() > driver.MaxNames {
			return driver.AcquireReply{}, errManyHolders
		}
		conditions = append(conditions, s.sameHolders(r.Name, q, revision)...)
	}
	if q[i].exclusive() {
		known = 0 // nobody joined
	}
	ttl := lasting(rec, r.TTL, sent)
	to, err := s.sessionFor(ctx, &rec, r.Client, ttl)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	v := q[i].value
	v.Weight, v.Limit, v.TTL = r.Weight, r.Limit, milliseconds(ttl)
	v.Fence, v.Queued, v.Resized = known, false, known == 0
	written, err := s.cli.Txn(ctx).If(conditions...).Then(clientv3.OpPut(rec.key, v.String(), clientv3.WithLease(to.id))).Commit()
	switch {
	case err != nil:
		return driver.AcquireReply{}, s.afterRefusal(ctx, err, to)
	case !written.Succeeded:
		return driver.AcquireReply{}, errAgain
	}
	rec.value, rec.session, rec.changed = v, to, written.Header.Revision
	fence := cmp.Or(known, s.fences.own(written.Header.Revision))
	return driver.AcquireReply{Held: true, Fence: fence}, s.extended(rec, ttl, fence, sent)
}

// sameHolders are the conditions for a larger weight: the queue did not change since it was read. New
// entries change the revision. If a holder or the first waiter leaves, another waiter can become a
// holder, so they must still exist.
func (s *Store) sameHolders(name string, q queue, revision int64) []clientv3.Cmp {
	conditions := []clientv3.Cmp{unchangedSince(s.keys.queue(name), revision)}
	for _, other := range q[:min(q.granted()+1, len(q))] {
		conditions = append(conditions, exists(other.key, other.created))
	}
	return conditions
}

// recordOf returns the record of a token's entry, which it adds if another process made the entry.
func (s *Store) recordOf(r driver.AcquireRequest, e entry) (record, error) {
	rec, ok := s.records.get(r.Name, r.Token)
	switch {
	case !ok:
		rec = record{name: r.Name, token: r.Token, key: e.key}
		if !s.records.add(&rec, "") {
			return rec, errAgain
		}
	case rec.ending:
		return rec, errEnding
	case rec.key != e.key:
		s.forget(rec)
		return rec, errAgain
	}
	rec.read(e)
	rec.session = s.sessionOf(rec, e)
	return rec, nil
}
