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

// Extend implements dibs.Store: a script call for each hundred locks, or for each
// slot where the server shards, all in one round trip.
func (s *Store) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	errs := make([]error, len(holds))
	until := deadline(ctx)
	groups := s.group(holds, errs)
	replies := make(chan func(), len(groups))
	for _, group := range groups {
		go func() {
			results := s.extend(ctx, holds, group, until)
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

// group sorts holds into those that one script call extends, as indices.
func (s *Store) group(holds []driver.ExtendRequest, errs []error) [][]int {
	const most = 100
	bySlot := make(map[int][]int)
	for i, h := range holds {
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

// extend extends the holds at some indices. Its i-th result belongs to holds[group[i]].
// If the server refuses the call, each is extended by itself: the reason may be one of
// them only.
func (s *Store) extend(ctx context.Context, holds []driver.ExtendRequest, group []int, until time.Time) []error {
	errs := s.extendBatch(ctx, holds, group, until)
	var refusal ServerError
	moving := slotIsMigrating(errs[0])
	if !moving && (len(group) == 1 || !errors.As(errs[0], &refusal)) {
		return errs
	}
	var each sync.WaitGroup
	for i, at := range group {
		each.Go(func() {
			if moving {
				errs[i] = s.extendByKey(ctx, holds[at], until)
			} else {
				errs[i] = s.extend(ctx, holds, group[i:i+1], until)[0]
			}
		})
	}
	each.Wait()
	return errs
}

// extendTogether does one script call.
func (s *Store) extendBatch(ctx context.Context, holds []driver.ExtendRequest, group []int, until time.Time) []error {
	keys := make([]string, 0, 3*len(group))
	args := make([]string, 0, 5*len(group))
	var buf [512]byte
	var where *slotState
	for _, at := range group {
		h := holds[at]
		k := s.appendKeys(buf[:0], h.Name)
		lock, _, meta, _, holders := k.cut(string(k.text))
		where = s.slotOf(k)
		keys = append(keys, lock, meta, holders)
		args = append(args, h.Token, decimal(milliseconds(h.TTL)), strconv.FormatUint(h.Fence, 10), h.Client, extendArgument(h))
	}
	r := newRequest(extendScript, where, keys...)
	r.args(args...)
	reply, short := s.call(ctx, r, until, always)
	errs := make([]error, len(group))
	marks, ok := parseMarks(reply.Value, len(group))
	if reply.Err == nil && !ok {
		reply.Err = unexpected(reply.Value)
	}
	for i, at := range group {
		if reply.Err != nil {
			errs[i] = fail("extend", holds[at].Name, reply.Err)
		} else {
			errs[i] = s.extendResult(holds[at], marks[i], short)
		}
	}
	return errs
}

// noted is the weight that the meta note of a shared holder if they have lost it: zero
// if it is not known, or if the holder is exclusive.
func extendArgument(h driver.ExtendRequest) string {
	if h.Weight >= h.Limit {
		return "0"
	}
	return count(h.Weight)
}

// judge returns what the mark of a hold in a reply means.
func (s *Store) extendResult(h driver.ExtendRequest, mark byte, short error) error {
	switch {
	case mark == '0':
		return driver.ErrLost
	case mark == '1' && short != nil:
		return fail("extend", h.Name, short)
	case mark != '1':
		return fmt.Errorf("%w and not a lease: %w: key %q", driver.ErrWrongType, driver.ErrLost, s.prefix+h.Name)
	}
	return nil
}

// extendBare extends a hold in a slot that is on its way to another server, where a
// script may have one key only: each key by itself, all at once. Of an exclusive holder
// the lock tells all.
func (s *Store) extendByKey(ctx context.Context, h driver.ExtendRequest, until time.Time) error {
	k := s.appendKeys(nil, h.Name)
	lock, _, meta, _, holders := k.cut(string(k.text))
	var asked sync.WaitGroup
	ask := func(kind, key string) *keyResult {
		b := new(keyResult)
		asked.Go(func() { b.mark, b.short, b.err = s.extendKey(ctx, s.slotOf(k), h, kind, key, until) })
		return b
	}
	first := ask("lock", lock)
	if extendArgument(h) == "0" && h.Weight > 0 {
		asked.Wait()
		return first.result(s, h)
	}
	member := ask("holders", holders)
	ask("meta", meta) // what they have lost is noted by a later call
	asked.Wait()
	if first.err == nil && first.mark == sharedByAll {
		member.short = cmp.Or(member.short, first.short)
		return member.result(s, h)
	}
	return first.result(s, h)
}

// sharedByAll is extend_key.lua's mark of a lock that is shared: the holders tell by whom.
const sharedByAll = 's'

// oneKey is what one key tells of a hold.
type keyResult struct {
	mark       byte
	short, err error
}

func (b *keyResult) result(s *Store, h driver.ExtendRequest) error {
	if b.err != nil {
		return fail("extend", h.Name, b.err)
	}
	return s.extendResult(h, b.mark, b.short)
}

func (s *Store) extendKey(ctx context.Context, at *slotState, h driver.ExtendRequest, kind, key string, until time.Time) (mark byte, short, err error) {
	r := newRequest(extendKeyScript, at, key)
	r.args(kind, h.Token, decimal(milliseconds(h.TTL)))
	reply, short := s.call(ctx, r, until, always)
	marks, ok := parseMarks(reply.Value, 1)
	switch {
	case reply.Err != nil:
		return 0, nil, reply.Err
	case !ok:
		return 0, nil, unexpected(reply.Value)
	}
	return marks[0], short, nil
}
