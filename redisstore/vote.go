package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Redis server may be a node of a quorum.

// nodeKey is the key that identifies a store.
const nodeKey = "dibs:node"

// AcquireVote implements driver.Voter.
func (s *Store) AcquireVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (driver.VoteReply, error) {
	if err := s.checkVote(c); err != nil {
		return driver.VoteReply{}, err
	}
	return s.acquire(ctx, acquire, c, &v)
}

// CancelVote implements driver.Voter.
func (s *Store) CancelVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) error {
	if err := s.checkVote(c); err != nil {
		return err
	}
	return s.cancel(ctx, c, &v)
}

// ResizeVote implements driver.Voter.
func (s *Store) ResizeVote(ctx context.Context, c driver.AcquireRequest, v driver.Vote) (driver.AcquireReply, error) {
	if err := s.checkVote(c); err != nil {
		return driver.AcquireReply{}, err
	}
	reply, err := s.acquire(ctx, resize, c, &v)
	return reply.AcquireReply, err
}

// ReleaseVote implements driver.Voter.
func (s *Store) ReleaseVote(ctx context.Context, r driver.ReleaseRequest, v driver.Vote) (bool, error) {
	return s.release(ctx, "release", r, &v, "")
}

func (s *Store) checkVote(c driver.AcquireRequest) error {
	if s.sharded {
		return fmt.Errorf("%w: %q: a cluster cannot be a quorum node: its masters lose data one by one, in failovers", driver.ErrInvalid, c.Name)
	}
	return driver.CheckVote(c)
}

func (s *Store) voteRequest(c driver.AcquireRequest, v *driver.Vote) *request {
	r := s.requestOn(voteScript, c.Name)
	r.key(nodeKey)
	entry, relinquish := "", "0"
	if c.Queue {
		entry = string(appendEntry(nil, c, true))
	}
	if v.Relinquish {
		relinquish = "1"
	}
	r.args(s.checkArg(), c.Token, decimal(milliseconds(c.TTL)))
	r.untilArg()
	r.args(entry, sharedArgument(c))
	r.args(strconv.FormatUint(v.Ticket, 10), leastFence(v), recoveryArgument(v), relinquish, rand.Text())
	return r
}

// voteArguments are the arguments of release and resize with a vote.
func voteArguments(v *driver.Vote) []string {
	return []string{leastFence(v), recoveryArgument(v), rand.Text()}
}

// leastFence is the least fence that is granted. It is never zero, which means unknown.
func leastFence(v *driver.Vote) string { return strconv.FormatUint(max(v.Fence, 1), 10) }

// recoveryArgument is the recovery window in µs.
func recoveryArgument(v *driver.Vote) string { return decimal(v.RecoveryWindow.Microseconds()) }

// parseVote reads vote's reply. A server that abstains is an error.
func parseVote(c driver.AcquireRequest, v any) (answer driver.VoteReply, void bool, err error) {
	list, _ := v.([]any)
	if len(list) == 2 {
		n, ok := list[1].(int64)
		if ok && n == 0 {
			return answer, true, nil
		}
	}
	if len(list) != 3 {
		return answer, false, unexpected(v)
	}
	in := reader{fields: list}
	in.int()
	node := in.string()
	switch a := in.next().(type) {
	case int64:
		if a > 0 {
			return answer, false, &driver.UnavailableError{
				Op: "acquire", Name: c.Name, Refused: true, Cause: &driver.RecoveringError{Node: node, Remaining: time.Duration(a) * time.Microsecond},
			}
		}
		in.bad = true
	case []any:
		fields := reader{fields: a}
		answer.AcquireReply = fields.waitingReply()
		answer.Fence = fields.uint()
		in.must(!fields.bad && len(fields.fields) == 0)
	case string:
		answer.Fence, err = strconv.ParseUint(a, 10, 64)
		answer.Held = true
		in.must(err == nil && answer.Fence > 0)
	default:
		in.bad = true
	}
	if answer.Node = node; in.bad || node == "" {
		return driver.VoteReply{}, false, unexpected(v)
	}
	return answer, false, nil
}
