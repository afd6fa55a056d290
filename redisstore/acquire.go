package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/pipeline"
	"github.com/dibslock/dibs/redisstore/internal/wire"
)

// maxTries is how often a void request is sent. The first request on a new store does not
// know the server's time: it is void, and its reply contains the time. The same happens
// after the server's clock was set. More tries would not help.
const maxTries = 3

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.acquire(ctx, acquire, c)
}

// Resize implements driver.Resizer.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.acquire(ctx, resize, c)
}

// acquire sends an acquire or a resize.
func (s *Store) acquire(ctx context.Context, op acquireOp, c driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := s.checkRequest(c); err != nil {
		return driver.AcquireReply{}, err
	}
	if c.Until.IsZero() {
		c.Until = time.Now().Add(driver.OperationTimeout)
	}
	joined := false // an earlier call has added a queue entry, maybe
	for voids := 0; voids < maxTries; {
		reply, replicaErr := s.call(ctx, s.request(op, c), c.Until, isGrant)
		if reply.Err != nil && joined {
			reply.Err = pipeline.UnknownOutcome(reply.Err)
		}
		if reply.Err != nil {
			return driver.AcquireReply{}, s.wrapReplyError(ctx, c.Until, string(op), c.Names(), reply.Err)
		}
		answer, void, err := s.parseReply(op, c, reply.Value)
		switch {
		case errors.Is(err, driver.ErrUnavailable):
			return driver.AcquireReply{}, err
		case err != nil:
			return driver.AcquireReply{}, wrapError(string(op), c.Name, err)
		case replicaErr != nil:
			return driver.AcquireReply{}, s.undoGrant(ctx, op, c, replicaErr)
		case void:
			voids++
		case answer.Held || !unfinished(answer) || !time.Now().Before(c.Until):
			return answer, nil
		default:
			joined = true
		}
	}
	return driver.AcquireReply{}, wrapError(string(op), c.Name, errExpired)
}

// unfinished reports whether the script stopped before the end of the queue, to bound its
// time. It has to be called again.
func unfinished(a driver.AcquireReply) bool { return !a.Held && a.Holder == "" && a.Remaining == 0 }

func (s *Store) parseReply(op acquireOp, c driver.AcquireRequest, v any) (answer driver.AcquireReply, void bool, err error) {
	if op == acquire && c.Vote != nil {
		return wire.ParseVote(c, v)
	}
	answer, void, err = wire.ParseAcquire(v)
	if err == nil && !answer.Held && !void {
		answer.Name = wire.BusyName(c, v)
		if must, guessed := wire.MustPoll(c, answer, v); must {
			s.completeWait(&answer, guessed)
		}
	}
	return answer, void, err
}

// An acquireOp is an operation whose reply is a driver.AcquireReply.
type acquireOp string

const (
	acquire acquireOp = "acquire"
	resize  acquireOp = "resize"
)

func (s *Store) request(op acquireOp, c driver.AcquireRequest) *pipeline.Request {
	r := s.requests.Get()
	switch {
	case op == resize:
		s.format.Resize(&r.Request, c)
	case c.Vote != nil:
		s.format.Vote(&r.Request, c)
	case len(c.With) > 0:
		s.format.AcquireAll(&r.Request, c, isRecent(c))
	default:
		s.format.Acquire(&r.Request, c, isRecent(c))
	}
	return r
}

// isRecent reports whether the last reply to a request is so young that no script has removed
// its queue entry since. It was neither that of a dead waiter, nor served by a grant that has
// expired.
//
// The request may arrive until c.Until, and the recorded heartbeat may be a quarter of the waiter
// TTL older than the last one.
func isRecent(c driver.AcquireRequest) bool {
	return c.Until.Sub(c.Confirmed) < min(c.HandoffTTL(), driver.WaiterTTL*3/4)
}
