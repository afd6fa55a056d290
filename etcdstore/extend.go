package etcdstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// readAtOnce is how many entries a request reads.
	readAtOnce = 64

	// concurrent is how many requests a call sends at the same time.
	concurrent = 16
)

// Extend implements driver.Store. Leases on the same session need a single renewal, and a single
// read of their entries.
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
	x.run()
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

// run extends all leases. If an entry changed since its record was made, it is read, and the request
// for it is repeated.
func (x *extension) run() {
	var unknown []int
	x.moving, x.staying = nil, nil
	for i, r := range x.requests {
		rec, ok := x.s.records.get(r.Name, r.Token)
		if !ok || !rec.held || rec.ending {
			unknown = append(unknown, i)
			continue
		}
		x.add(i, rec)
	}
	for range attempts {
		x.find(unknown)
		x.keepSessions()
		x.each(x.moving, x.rebind)
		x.verify()
		if unknown = x.changed(); len(unknown) == 0 {
			return
		}
		x.moving, x.staying = nil, nil
	}
}

// changed returns the requests to repeat.
func (x *extension) changed() (again []int) {
	for i, err := range x.errs {
		if errors.Is(err, errAgain) {
			again = append(again, i)
		}
	}
	return again
}

// errEnding means that the end of an entry was requested, but not answered.
var errEnding = errors.New("an earlier request to end the lease got no answer")

// find reads entries. They may be of other processes.
func (x *extension) find(unknown []int) {
	x.each(unknown, func(i int) error {
		r := x.requests[i]
		if err := driver.CheckName(r.Name); err != nil {
			return err
		}
		rec, found, err := x.s.findHolder(x.ctx, r.Name, r.Token)
		switch {
		case err != nil:
			return err
		case !found || rec.value.Reserved:
			x.s.fences.doubt()
			if rec.held {
				x.s.forget(rec)
			}
			return driver.ErrLost
		case rec.ending:
			return errEnding
		}
		if r.Client != "" {
			rec.value.Client = r.Client
		}
		rec.fence = max(rec.fence, x.s.fenceOf(rec), r.Fence)
		if rec.number == 0 && !x.s.records.add(&rec, "") {
			return errAgain
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
	if x.s.stays(rec, x.requests[i].TTL) {
		x.staying = append(x.staying, i)
		return
	}
	x.moving = append(x.moving, i)
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
		err := orAgain(failed[rec.session])
		if err == nil {
			err = x.s.extended(rec, x.requests[i].TTL, rec.fence, x.sent)
		}
		x.errs[i] = err
	}
}

// rebind moves an entry to a session with the requested TTL.
func (x *extension) rebind(i int) error {
	rec, r := x.recs[i], x.requests[i]
	return x.s.rebind(x.ctx, rec, max(r.TTL, minTTL), max(rec.fence, r.Fence), x.sent)
}

// verify reads the entries that stay: etcd says that a session lasts, but not that its entries exist.
func (x *extension) verify() {
	bySession := make(map[*session][]int)
	for _, i := range x.staying {
		if x.errs[i] == nil {
			bySession[x.recs[i].session] = append(bySession[x.recs[i].session], i)
		}
	}
	var few []int
	var group sync.WaitGroup
	for on, some := range bySession {
		if len(some) <= readAtOnce {
			few = append(few, some...)
			continue
		}
		group.Go(func() { x.verifySession(on, some) })
	}
	for some := range slices.Chunk(few, readAtOnce) {
		group.Go(func() { x.verifyEntries(some) })
	}
	group.Wait()
}

// verifyEntries reads entries in a single request.
func (x *extension) verifyEntries(some []int) {
	var gets []clientv3.Op
	for _, i := range some {
		gets = append(gets, clientv3.OpGet(x.recs[i].key))
	}
	reply, err := twice(x.ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return x.s.cli.Txn(ctx).Then(gets...).Commit()
	})
	for k, i := range some {
		if err != nil {
			x.errs[i] = err
			continue
		}
		kvs := reply.Responses[k].GetResponseRange().GetKvs()
		if len(kvs) == 0 || kvs[0].ModRevision != x.recs[i].changed {
			x.errs[i] = errAgain
		}
	}
}

// verifySession reads the keys of a session, in a single request. Only this process adds keys to it.
func (x *extension) verifySession(on *session, some []int) {
	reply, err := twice(x.ctx, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return x.s.cli.TimeToLive(ctx, on.id, clientv3.WithAttachedKeys())
	})
	if err != nil {
		for _, i := range some {
			x.errs[i] = err
		}
		return
	}
	keys := make(map[string]bool, len(reply.Keys))
	for _, key := range reply.Keys {
		keys[string(key)] = true
	}
	for _, i := range some {
		if !keys[x.recs[i].key] {
			x.errs[i] = errAgain
		}
	}
}

// each calls do for some requests, several at the same time, and records its errors.
func (x *extension) each(some []int, do func(i int) error) {
	concurrently(some, func(i int) { x.errs[i] = do(i) })
}

// concurrently calls do for all elements, several at the same time.
func concurrently[E any](all []E, do func(E)) {
	slots := make(chan struct{}, concurrent)
	var group sync.WaitGroup
	for _, e := range all {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			do(e)
		})
	}
	group.Wait()
}
