package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Extend implements driver.Store. A script call extends up to a hundred locks. On a cluster they
// are in the same slot, and behind a proxy they have the same hash tag. All calls run concurrently.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	until := driver.DeadlineOf(ctx)
	groups := s.group(requests, errs)
	var others sync.WaitGroup
	for n, group := range groups {
		extend := func() {
			for i, err := range s.extend(ctx, requests, group, until) {
				errs[group[i]] = err
			}
		}
		if n < len(groups)-1 {
			others.Go(extend)
		} else {
			extend() // most renewals are a single group and need no other goroutine
		}
	}
	others.Wait()
	return errs
}

// group divides requests into groups for one script call each, as indices. It sets errs for invalid
// requests.
func (s *Store) group(requests []driver.ExtendRequest, errs []error) [][]int {
	byRoute := make(map[wire.Route][]int)
	for i, r := range requests {
		if errs[i] = errors.Join(s.check(r.Name), s.checkToken(r.Name, r.Token)); errs[i] != nil {
			continue
		}
		at := s.format.Route(r.Name)
		byRoute[at] = append(byRoute[at], i)
	}
	var groups [][]int
	for _, all := range byRoute {
		groups = slices.AppendSeq(groups, slices.Chunk(all, wire.MaxNames))
	}
	return groups
}

// extend extends the requests at some indices. Its i-th result belongs to requests[group[i]]. If
// the server refuses the call, each request is extended alone, since a single request may be the
// reason.
func (s *Store) extend(ctx context.Context, requests []driver.ExtendRequest, group []int, until time.Time) []error {
	errs := s.extendBatch(ctx, requests, group, until)
	var refusal redisconn.ServerError
	migrating := slotIsMigrating(errs[0])
	if !migrating && (len(group) == 1 || !errors.As(errs[0], &refusal)) {
		return errs
	}
	var each sync.WaitGroup
	for i, at := range group {
		each.Go(func() {
			if migrating {
				errs[i] = s.extendByKey(ctx, requests[at], until)
			} else {
				errs[i] = s.extend(ctx, requests, group[i:i+1], until)[0]
			}
		})
	}
	each.Wait()
	return errs
}

// extendBatch makes one script call.
func (s *Store) extendBatch(ctx context.Context, requests []driver.ExtendRequest, group []int, until time.Time) []error {
	r := s.requests.Get()
	s.format.Extend(&r.Request, requests, group)
	r.Extends = true
	reply, replicaErr := s.call(ctx, r, until, anyReply)
	errs := make([]error, len(group))
	statuses, ok := wire.ParseStatuses(reply.Value, len(group))
	if reply.Err == nil && !ok {
		reply.Err = redisconn.Unexpected(reply.Value)
	}
	for i, at := range group {
		switch {
		case reply.Err != nil:
			errs[i] = s.wrapReplyError(ctx, until, "extend", []string{requests[at].Name}, reply.Err)
		case statuses[i] == wire.StatusShared:
			errs[i] = s.extendShared(ctx, requests[at], until)
		default:
			errs[i] = s.extendResult(ctx, until, requests[at], statuses[i], replicaErr)
		}
	}
	return errs
}

// extendShared extends a lease that is exclusive for its client but shared on the server. Either a
// weight change had no reply, or the lease is lost.
func (s *Store) extendShared(ctx context.Context, h driver.ExtendRequest, until time.Time) error {
	h.Weight, h.Limit = 0, 0 // the script also gets the keys for shared leases
	return s.extend(ctx, []driver.ExtendRequest{h}, []int{0}, until)[0]
}

// extendResult converts a request's status in a reply.
func (s *Store) extendResult(ctx context.Context, until time.Time, h driver.ExtendRequest, status byte, replicaErr error) error {
	switch {
	case status == '0':
		return driver.ErrLost
	case status == '1' && replicaErr != nil:
		return wrapError("extend", h.Name, replicaErr)
	case status != '1':
		return fmt.Errorf("%w: %w", driver.ErrLost, s.wrapReplyError(ctx, until, "extend", []string{h.Name}, errOtherType))
	}
	return nil
}

// extendByKey extends a lease in a slot during its migration to another server, where a script may
// use only one key. It extends each key in its own call, concurrently. For an exclusive holder the
// lock key alone decides.
func (s *Store) extendByKey(ctx context.Context, h driver.ExtendRequest, until time.Time) error {
	var pending sync.WaitGroup
	extendOne := func(kind string) *keyResult {
		b := new(keyResult)
		pending.Go(func() { b.status, b.replicaErr, b.err = s.extendKey(ctx, h, kind, until) })
		return b
	}
	inLock := extendOne("lock")
	if wire.IsExclusive(h) {
		pending.Wait()
		return inLock.result(ctx, until, s, h)
	}
	inHolders := extendOne("holders")
	extendOne("meta") // a later call restores lost metadata
	pending.Wait()
	if inLock.err == nil && inLock.status == wire.StatusShared {
		inHolders.replicaErr = cmp.Or(inHolders.replicaErr, inLock.replicaErr)
		return inHolders.result(ctx, until, s, h)
	}
	return inLock.result(ctx, until, s, h)
}

// A keyResult is the result for one of a lease's keys.
type keyResult struct {
	status          byte
	replicaErr, err error
}

func (b *keyResult) result(ctx context.Context, until time.Time, s *Store, h driver.ExtendRequest) error {
	if b.err != nil {
		return s.wrapReplyError(ctx, until, "extend", []string{h.Name}, b.err)
	}
	return s.extendResult(ctx, until, h, b.status, b.replicaErr)
}

func (s *Store) extendKey(ctx context.Context, h driver.ExtendRequest, kind string, until time.Time) (status byte, replicaErr, err error) {
	r := s.requests.Get()
	s.format.ExtendKey(&r.Request, h, kind)
	r.Extends = true
	reply, replicaErr := s.call(ctx, r, until, anyReply)
	statuses, ok := wire.ParseStatuses(reply.Value, 1)
	switch {
	case reply.Err != nil:
		return 0, nil, reply.Err
	case !ok:
		return 0, nil, redisconn.Unexpected(reply.Value)
	}
	return statuses[0], replicaErr, nil
}
