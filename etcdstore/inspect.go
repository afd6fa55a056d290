package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/glob"
	"github.com/dibslock/dibs/driver/ownertoken"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	shown     = 100  // holders or waiters in a state
	inspected = 50   // names in a single request
	listed    = 1000 // keys in a single request
)

// Inspect implements driver.Inspector.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	states, err := s.InspectAll(ctx, []string{name})
	if err != nil {
		return driver.State{}, err
	}
	return states[0], nil
}

// InspectAll implements driver.Lister. A request reads at most 50 names. Another request for each
// session reads its remaining time.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	for _, name := range names {
		if err := driver.CheckName(name); err != nil {
			return nil, err
		}
	}
	op := ""
	if len(names) == 1 {
		op = names[0]
	}
	ctx, cancel, err := s.begin(ctx, "inspect", op, noLimit)
	if err != nil {
		return nil, err
	}
	defer cancel()
	states := make([]driver.State, 0, len(names))
	for some := range slices.Chunk(names, inspected) {
		queues, revision, err := s.readAll(ctx, some)
		if err != nil {
			return nil, unavailable("inspect", op, err)
		}
		left, err := s.remaining(ctx, queues)
		if err != nil {
			return nil, unavailable("inspect", op, err)
		}
		for i, q := range queues {
			states = append(states, s.state(some[i], q, revision, left))
		}
	}
	return states, nil
}

// state describes a queue.
func (s *Store) state(name string, q queue, revision int64, left map[clientv3.LeaseID]leaseTime) driver.State {
	holders, waiters := q.holders(), q.waiters()
	state := driver.State{Name: name, Holding: len(holders), Waiting: len(waiters), Fence: s.fences.upTo(revision)}
	for _, e := range holders {
		h := s.describe(e, left[e.lease])
		if e.foreign {
			state.Foreign = describeForeign(e, h.Remaining)
		}
		state.Holders = append(state.Holders, h)
	}
	slices.SortStableFunc(state.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Remaining, b.Remaining) })
	state.Holders = state.Holders[:min(len(state.Holders), shown)]
	for _, e := range waiters[:min(len(waiters), shown)] {
		w := ownertoken.NewWaiter(e.Token, e.Weight, e.Limit)
		w.Waited = max(0, time.Since(time.UnixMilli(e.Since)))
		if e.Since == 0 {
			w.Waited = 0
		}
		state.Waiters = append(state.Waiters, w)
	}
	return state
}

func (s *Store) describe(e entry, left leaseTime) driver.Holder {
	weight := e.Weight
	if e.exclusive() {
		weight = 0
	}
	h := ownertoken.NewHolder(e.Token, weight)
	h.Fence, h.Reserved = s.fences.of(e), e.Reserved
	if e.foreign {
		h.Owner, h.Label = e.label, e.label
		h.Remaining = max(left.remaining, time.Millisecond)
		if e.lease == clientv3.NoLease {
			h.Remaining = -1
		}
		return h
	}
	if e.Since > 0 && !e.Queued { // a fence is no time here
		h.Since = time.UnixMilli(e.Since)
	}
	h.Remaining = max(left.remaining-max(left.granted-e.ttl(), 0), time.Millisecond)
	return h
}

// A leaseTime is the TTL of a lease in etcd, and its remaining time.
type leaseTime struct{ granted, remaining time.Duration }

// remaining returns the times of all holders' leases.
func (s *Store) remaining(ctx context.Context, queues []queue) (map[clientv3.LeaseID]leaseTime, error) {
	times := make(map[clientv3.LeaseID]leaseTime)
	for _, q := range queues {
		for _, e := range q.holders() {
			if e.lease != clientv3.NoLease {
				times[e.lease] = leaseTime{}
			}
		}
	}
	var mu sync.Mutex
	var failed error
	concurrently(slices.Collect(maps.Keys(times)), func(id clientv3.LeaseID) {
		reply, err := s.cli.TimeToLive(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
		case err != nil:
			failed = err
		default:
			times[id] = leaseTime{time.Duration(reply.GrantedTTL) * time.Second, max(time.Duration(reply.TTL)*time.Second, time.Millisecond)}
		}
	})
	return times, failed
}

// List implements driver.Lister. A request reads at most 1,000 keys.
func (s *Store) List(ctx context.Context, pattern string) (names []string, err error) {
	matching, err := glob.Parse(pattern)
	if err != nil {
		return nil, err
	}
	ctx, cancel, err := s.begin(ctx, "list", "", noLimit)
	if err != nil {
		return nil, err
	}
	defer cancel()
	seen := make(map[string]bool)
	from, end := s.keys.prefix, clientv3.GetPrefixRangeEnd(s.keys.prefix)
	if s.keys.prefix == "" {
		from, end = "\x00", "\x00" // all keys
	}
	for {
		reply, err := s.cli.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(listed), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
		if err != nil {
			return nil, unavailable("list", "", err)
		}
		for _, kv := range reply.Kvs {
			name, ok := s.keys.nameOf(string(kv.Key))
			if ok && !seen[name] && matching.Matches(name) {
				seen[name] = true
				names = append(names, name)
			}
		}
		if !reply.More {
			return names, nil
		}
		from = string(reply.Kvs[len(reply.Kvs)-1].Key) + "\x00"
	}
}
