package etcdstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// verified is how many entries an Extend reads. Etcd says that a session lasts, but not that its
	// entries exist. Later calls read others.
	verified = 64

	// concurrent is how many requests an Extend sends at the same time.
	concurrent = 16
)

// Extend implements driver.Store. Leases on the same session need a single renewal, together with a
// read of some of the entries.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	ctx, cancel, err := s.begin(ctx, "extend", "", noLimit)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer cancel()
	x := &extension{s: s, ctx: ctx, sent: s.clock.Check(), requests: requests, errs: errs, recs: make([]record, len(requests))}
	x.findRecords()
	x.keepSessions()
	x.each(x.moving, x.lengthen)
	x.verify()
	for i, err := range errs {
		if err != nil && !errors.Is(err, driver.ErrLost) {
			errs[i] = unavailable("extend", requests[i].Name, err)
		}
	}
	return errs
}

// An extension is a call of Extend.
type extension struct {
	s        *Store
	ctx      context.Context
	sent     time.Duration
	requests []driver.ExtendRequest
	recs     []record
	errs     []error
	moving   []int // entries that need another session
	staying  []int
}

// findRecords finds the entries. Entries of other processes are read.
func (x *extension) findRecords() {
	var unknown []int
	for i, r := range x.requests {
		rec, ok := x.s.records.get(r.Name, r.Token)
		if !ok || !rec.held {
			unknown = append(unknown, i)
			continue
		}
		x.add(i, rec)
	}
	x.each(unknown, func(i int) error {
		r := x.requests[i]
		if err := driver.CheckName(r.Name); err != nil {
			return err
		}
		found, e, err := x.s.holder(x.ctx, r.Name, r.Token)
		if err != nil {
			return err
		}
		if !found || e.Reserved {
			return driver.ErrLost
		}
		rec, ok := x.s.records.get(r.Name, r.Token)
		if !ok || rec.key != e.key || rec.created != e.created {
			rec = record{name: r.Name, token: r.Token, key: e.key, id: x.s.idOf(e.key), created: e.created}
		}
		if rec.session != nil && rec.session.id != e.lease {
			rec.session = nil
		}
		rec.value, rec.fence = e.value, max(x.s.fences.of(e), r.Fence)
		if rec.value.Client == "" || r.Client != "" {
			rec.value.Client = r.Client
		}
		x.recs[i] = rec
		return nil
	})
	for _, i := range unknown {
		if x.errs[i] == nil {
			x.add(i, x.recs[i])
		}
	}
}

// add plans the extension of an entry.
func (x *extension) add(i int, rec record) {
	x.recs[i] = rec
	on := rec.session
	if on == nil || rec.value.Queued || !on.suits(x.requests[i].TTL, x.sent) {
		x.moving = append(x.moving, i)
		return
	}
	x.staying = append(x.staying, i)
}

// keepSessions renews the sessions of the entries that stay.
func (x *extension) keepSessions() {
	needs := make(map[*session]time.Duration)
	for _, i := range x.staying {
		on := x.recs[i].session
		needs[on] = max(needs[on], x.requests[i].TTL)
	}
	var mu sync.Mutex
	failed := make(map[*session]error)
	var group sync.WaitGroup
	for on, ttl := range needs {
		group.Go(func() {
			if err := x.s.sessions.keep(x.ctx, on, ttl); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[on] = err
			}
		})
	}
	group.Wait()
	for _, i := range x.staying {
		rec := x.recs[i]
		switch err := failed[rec.session]; {
		case errors.Is(err, errEnded):
			x.lose(i)
		case err != nil:
			x.errs[i] = err
		default:
			x.s.extended(&rec, x.requests[i].TTL, rec.fence, x.sent)
		}
	}
}

// lose records that an entry ended.
func (x *extension) lose(i int) {
	x.errs[i] = driver.ErrLost
	x.s.fences.doubt()
	x.s.records.remove(x.recs[i], false)
}

// lengthen moves an entry to a session with the requested TTL.
func (x *extension) lengthen(i int) error {
	rec, r := x.recs[i], x.requests[i]
	e := entry{value: rec.value, key: rec.key, created: rec.created}
	err := x.s.rebind(x.ctx, &rec, e, max(r.TTL, minTTL), max(rec.fence, r.Fence), x.sent)
	if errors.Is(err, errAgain) {
		x.s.fences.doubt()
		x.s.records.remove(rec, false)
		return driver.ErrLost
	}
	return err
}

// verify reads some of the entries that stay.
func (x *extension) verify() {
	n := len(x.staying)
	if n == 0 {
		return
	}
	from := int(x.s.verifyFrom.Add(verified) % uint64(n))
	var read []int
	var gets []clientv3.Op
	for k := range min(n, verified) {
		i := x.staying[(from+k)%n]
		if x.errs[i] == nil {
			read = append(read, i)
			gets = append(gets, clientv3.OpGet(x.recs[i].key))
		}
	}
	if len(gets) == 0 {
		return
	}
	reply, err := twice(x.ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return x.s.cli.Txn(ctx).Then(gets...).Commit()
	})
	for k, i := range read {
		if err != nil {
			x.errs[i] = err
			continue
		}
		q := readQueue(x.s.keys.queue(x.requests[i].Name), reply.Responses[k].GetResponseRange().GetKvs())
		if len(q) == 0 || q[0].created != x.recs[i].created || q[0].Token != x.requests[i].Token || q[0].Reserved {
			x.lose(i)
		}
	}
}

// each calls do for some requests, several at the same time, and records its errors.
func (x *extension) each(some []int, do func(i int) error) {
	slots := make(chan struct{}, concurrent)
	var group sync.WaitGroup
	for _, i := range some {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			x.errs[i] = do(i)
		})
	}
	group.Wait()
}
