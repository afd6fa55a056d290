package redisstore

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Redis server may be a node of a quorum: package quorum sends it requests with a
// driver.VoteRequest.

// nodeKey is the key that identifies a store.
const nodeKey = "dibs:node"

func (s *Store) checkVote(c driver.AcquireRequest) error {
	switch {
	case c.Vote == nil:
		return nil
	case s.sharded:
		return fmt.Errorf("%w: %q: a cluster cannot be a quorum node: its masters lose data one by one, in failovers", driver.ErrInvalid, c.Name)
	case len(c.With) > 0:
		return fmt.Errorf("%w: %q and others: a vote request is for one name", driver.ErrInvalid, c.Name)
	}
	return nil
}

func (s *Store) voteRequest(c driver.AcquireRequest) *request {
	r := s.requestOn(voteScript, c.Name)
	r.key(nodeKey)
	entry, relinquish := "", "0"
	if c.Queue {
		entry = string(appendEntry(nil, c))
	}
	if c.Vote.Relinquish {
		relinquish = "1"
	}
	r.args(s.checkArg(), c.Token, decimal(milliseconds(c.TTL)))
	r.untilArg()
	r.args(entry, sharedArgument(c))
	r.args(strconv.FormatUint(c.Vote.Ticket, 10), leastFence(c.Vote), recoveryArgument(c.Vote), relinquish, rand.Text())
	return r
}

// voteArguments are the arguments of release and resize for a vote request.
func voteArguments(b *driver.VoteRequest) []string {
	return []string{leastFence(b), recoveryArgument(b), rand.Text()}
}

// leastFence is the least fence that is granted. It is never zero, which means unknown.
func leastFence(b *driver.VoteRequest) string { return strconv.FormatUint(max(b.Fence, 1), 10) }

// recoveryArgument is the recovery window in µs.
func recoveryArgument(b *driver.VoteRequest) string { return decimal(b.RecoveryWindow.Microseconds()) }

// parseVote reads vote's reply. A server that abstains is an error.
func parseVote(c driver.AcquireRequest, v any) (answer driver.AcquireReply, void bool, err error) {
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
		answer = fields.waitingReply()
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
		return driver.AcquireReply{}, false, unexpected(v)
	}
	return answer, false, nil
}
