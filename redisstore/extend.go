package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/slots"
)

// Extend implements driver.Store. It makes a script call for each hundred locks, on a
// cluster for each slot; all run concurrently.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	until := deadline(ctx)
	groups := s.group(requests, errs)
	replies := make(chan func(), len(groups))
	for _, group := range groups {
		go func() {
			results := s.extend(ctx, requests, group, until)
			replies <- func() {
				for i, at := range group {
					errs[at] = results[i]
				}
			}
		}()
	}
	for range groups {
		(<-replies)()
	}
	return errs
}

// group divides requests into those that one script call extends, as indices. It sets
// errs of invalid requests.
func (s *Store) group(requests []driver.ExtendRequest, errs []error) [][]int {
	const most = 100
	bySlot := make(map[int][]int)
	for i, h := range requests {
		if errs[i] = errors.Join(s.check(h.Name), checkToken(h.Name, h.Token)); errs[i] != nil {
			continue
		}
		at := 0
		if s.sharded {
			at = slots.Of(s.prefix + h.Name)
		}
		bySlot[at] = append(bySlot[at], i)
	}
	var groups [][]int
	for _, all := range bySlot {
		groups = slices.AppendSeq(groups, slices.Chunk(all, most))
	}
	return groups
}

// extend extends the requests at some indices. Its i-th result belongs to
// requests[group[i]]. If the server refuses the call, each is extended alone, since one
// of them may be the reason.
func (s *Store) extend(ctx context.Context, requests []driver.ExtendRequest, group []int, until time.Time) []error {
	errs := s.extendBatch(ctx, requests, group, until)
	var refusal ServerError
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

// extendBatch does one script call.
func (s *Store) extendBatch(ctx context.Context, requests []driver.ExtendRequest, group []int, until time.Time) []error {
	keys := make([]string, 0, 3*len(group))
	args := make([]string, 0, 5*len(group))
	var buf [512]byte
	var where *slotState
	for _, at := range group {
		h := requests[at]
		k := s.appendKeys(buf[:0], h.Name)
		lock, _, meta, _, holders := k.split(string(k.text))
		where = s.slotOf(k)
		keys = append(keys, lock, meta, holders)
		args = append(args, h.Token, decimal(milliseconds(h.TTL)), strconv.FormatUint(h.Fence, 10), h.Client, extendArgument(h))
	}
	r := newRequest(extendScript, where, keys...)
	r.args(args...)
	reply, replicaErr := s.call(ctx, r, until, anyReply)
	errs := make([]error, len(group))
	statuses, ok := parseStatuses(reply.Value, len(group))
	if reply.Err == nil && !ok {
		reply.Err = unexpected(reply.Value)
	}
	for i, at := range group {
		if reply.Err != nil {
			errs[i] = wrapError("extend", requests[at].Name, reply.Err)
		} else {
			errs[i] = s.extendResult(requests[at], statuses[i], replicaErr)
		}
	}
	return errs
}

// extendArgument is the weight of a shared holder, which extend writes to the metadata if
// it was lost there. It is zero if the weight is not known, or if the holder is
// exclusive.
func extendArgument(h driver.ExtendRequest) string {
	if h.Weight >= h.Limit {
		return "0"
	}
	return count(h.Weight)
}

// extendResult converts the status of one request in a reply.
func (s *Store) extendResult(h driver.ExtendRequest, status byte, replicaErr error) error {
	switch {
	case status == '0':
		return driver.ErrLost
	case status == '1' && replicaErr != nil:
		return wrapError("extend", h.Name, replicaErr)
	case status != '1':
		return fmt.Errorf("%w: %w: key %q", driver.ErrWrongType, driver.ErrLost, s.prefix+h.Name)
	}
	return nil
}

// extendByKey extends a lease in a slot that is migrating to another server, where a
// script may have one key only. It extends each key in a call of its own, concurrently.
// For an exclusive holder the lock key alone decides.
func (s *Store) extendByKey(ctx context.Context, h driver.ExtendRequest, until time.Time) error {
	k := s.appendKeys(nil, h.Name)
	lock, _, meta, _, holders := k.split(string(k.text))
	var pending sync.WaitGroup
	extendOne := func(kind, key string) *keyResult {
		b := new(keyResult)
		pending.Go(func() { b.status, b.replicaErr, b.err = s.extendKey(ctx, s.slotOf(k), h, kind, key, until) })
		return b
	}
	inLock := extendOne("lock", lock)
	if extendArgument(h) == "0" && h.Weight > 0 {
		pending.Wait()
		return inLock.result(s, h)
	}
	inHolders := extendOne("holders", holders)
	extendOne("meta", meta) // a later call restores what the metadata lost
	pending.Wait()
	if inLock.err == nil && inLock.status == statusShared {
		inHolders.replicaErr = cmp.Or(inHolders.replicaErr, inLock.replicaErr)
		return inHolders.result(s, h)
	}
	return inLock.result(s, h)
}

// statusShared is the status in extend_key.lua of a lock that is shared: the holders key
// decides.
const statusShared = 's'

// A keyResult is the result for one key of a lease.
type keyResult struct {
	status          byte
	replicaErr, err error
}

func (b *keyResult) result(s *Store, h driver.ExtendRequest) error {
	if b.err != nil {
		return wrapError("extend", h.Name, b.err)
	}
	return s.extendResult(h, b.status, b.replicaErr)
}

func (s *Store) extendKey(ctx context.Context, at *slotState, h driver.ExtendRequest, kind, key string, until time.Time) (status byte, replicaErr, err error) {
	r := newRequest(extendKeyScript, at, key)
	r.args(kind, h.Token, decimal(milliseconds(h.TTL)))
	reply, replicaErr := s.call(ctx, r, until, anyReply)
	statuses, ok := parseStatuses(reply.Value, 1)
	switch {
	case reply.Err != nil:
		return 0, nil, reply.Err
	case !ok:
		return 0, nil, unexpected(reply.Value)
	}
	return statuses[0], replicaErr, nil
}
