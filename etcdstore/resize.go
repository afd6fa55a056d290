package etcdstore

import (
	"context"
	"errors"
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
	ctx, cancel, err := s.begin(ctx, "resize", r.Name, r.Until)
	if err != nil {
		return driver.AcquireReply{}, err
	}
	defer cancel()
	for range attempts {
		reply, again, err := s.resize(ctx, r)
		if err != nil {
			return driver.AcquireReply{}, unavailable("resize", r.Name, err)
		}
		if !again {
			return reply, nil
		}
	}
	return driver.AcquireReply{}, unavailable("resize", r.Name, errAgain)
}

// resize makes an attempt. again means that the queue changed meanwhile.
func (s *Store) resize(ctx context.Context, r driver.AcquireRequest) (reply driver.AcquireReply, again bool, err error) {
	sent := s.clock.Check()
	lease, err := s.sessions.forTTL(ctx, r.Client, r.TTL)
	if err != nil {
		return reply, false, err
	}
	q, revision, err := s.read(ctx, r.Name)
	if err != nil {
		return reply, false, err
	}
	i, granted := q.find(r.Token), q.granted()
	if i < 0 || i >= granted || q[i].Reserved || q[i].pending() {
		reply = s.busy(ctx, q, len(q), revision)
		reply.Name, reply.Position = r.Name, 0
		return reply, false, nil
	}
	if other, fits := q.fitsResized(i, r); !fits {
		reply = s.busy(ctx, queue{other}, 1, revision)
		reply.Name, reply.Position = r.Name, 0
		return reply, false, nil
	}
	return s.writeWeight(ctx, r, q, i, revision, lease, sent)
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
var errManyHolders = fmt.Errorf("%w: more than %d holders: a lease beside so many cannot get a larger weight", driver.ErrInvalid, driver.MaxNames)

// writeWeight writes an entry's new weight. A larger weight needs a queue that did not change since
// it was read. New entries change the revision. If a holder or the first waiter leaves, another
// waiter can become a holder, so they must still exist.
func (s *Store) writeWeight(ctx context.Context, r driver.AcquireRequest, q queue, i int, revision int64, lease *session, sent time.Duration) (reply driver.AcquireReply, again bool, err error) {
	e := q[i]
	conditions := []clientv3.Cmp{exists(e.key, e.created), clientv3.Compare(clientv3.ModRevision(e.key), "=", e.changed)}
	if r.Weight > e.Weight || r.Exclusive() {
		conditions = append(conditions, unchangedSince(s.keys.queue(r.Name), revision))
		granted := q.granted()
		if granted > driver.MaxNames {
			return reply, false, errManyHolders
		}
		for _, other := range q[:min(granted+1, len(q))] {
			conditions = append(conditions, exists(other.key, other.created))
		}
	}
	v := e.value
	v.Weight, v.Limit, v.TTL = r.Weight, r.Limit, r.TTL.Milliseconds()
	v.Fence, v.Queued, v.Resized = 0, false, true
	written, err := s.cli.Txn(ctx).If(conditions...).Then(clientv3.OpPut(e.key, v.String(), clientv3.WithLease(lease.id))).Commit()
	if err != nil {
		err = s.afterRefusal(ctx, err, lease)
		return reply, errors.Is(err, errAgain), notAgain(err)
	}
	if !written.Succeeded {
		return reply, true, nil
	}
	rec, ok := s.records.get(r.Name, r.Token)
	if !ok || rec.key != e.key {
		rec = record{name: r.Name, token: r.Token, key: e.key, id: s.idOf(e.key)}
	}
	if rec.session != lease {
		s.leave(rec.session)
	}
	fence := s.fences.own(written.Header.Revision)
	rec.value, rec.session, rec.created = v, lease, e.created
	s.extended(&rec, r.TTL, fence, sent)
	return driver.AcquireReply{Held: true, Fence: fence}, false, nil
}

// notAgain returns an error other than errAgain.
func notAgain(err error) error {
	if errors.Is(err, errAgain) {
		return nil
	}
	return err
}
