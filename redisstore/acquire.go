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
func (s *Store) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.acquire(ctx, acquire, r)
}

// Resize implements driver.Resizer.
func (s *Store) Resize(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return s.acquire(ctx, resize, r)
}

// acquire sends an acquire or a resize.
func (s *Store) acquire(ctx context.Context, op acquireOp, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := s.checkRequest(r); err != nil {
		return driver.AcquireReply{}, err
	}
	if r.Until.IsZero() {
		r.Until = time.Now().Add(driver.OperationTimeout)
	}
	joined := false // an earlier call may have added a queue entry
	for voids := 0; voids < maxTries; {
		reply, replicaErr := s.call(ctx, s.request(op, r), r.Until, isGrant)
		if reply.Err != nil && joined {
			reply.Err = pipeline.UnknownOutcome(reply.Err)
		}
		if reply.Err != nil {
			return driver.AcquireReply{}, s.wrapReplyError(ctx, r.Until, string(op), r.Names(), reply.Err)
		}
		answer, void, err := s.parseReply(op, r, reply.Value)
		switch {
		case errors.Is(err, driver.ErrUnavailable):
			return driver.AcquireReply{}, err
		case err != nil:
			return driver.AcquireReply{}, wrapError(string(op), r.Name, err)
		case replicaErr != nil:
			return driver.AcquireReply{}, s.undoGrant(ctx, op, r, replicaErr)
		case void:
			voids++
		case answer.Held || !unfinished(answer) || !time.Now().Before(r.Until):
			return answer, nil
		default:
			joined = true
		}
	}
	return driver.AcquireReply{}, wrapError(string(op), r.Name, errExpired)
}

// unfinished reports whether the script stopped before the end of the queue, to bound its time.
// Then the call must be repeated.
func unfinished(a driver.AcquireReply) bool { return !a.Held && a.Holder == "" && a.Remaining == 0 }

func (s *Store) parseReply(op acquireOp, r driver.AcquireRequest, v any) (answer driver.AcquireReply, void bool, err error) {
	if op == acquire && r.Vote != nil {
		return wire.ParseVote(r, v)
	}
	answer, void, err = wire.ParseAcquire(v)
	if err == nil && !answer.Held && !void {
		answer.Name = wire.BusyName(r, v)
		if must, guessed := wire.MustPoll(r, answer, v); must {
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

func (s *Store) request(op acquireOp, request driver.AcquireRequest) *pipeline.Request {
	r := s.requests.Get()
	switch {
	case op == resize:
		s.format.Resize(&r.Request, request)
	case request.Vote != nil:
		s.format.Vote(&r.Request, request)
	case len(request.With) > 0:
		s.format.AcquireAll(&r.Request, request, isRecent(request))
	default:
		s.format.Acquire(&r.Request, request, isRecent(request))
	}
	return r
}

// isRecent reports whether a request's last reply is very young: since then no script can have
// removed its queue entry, as a dead waiter's or for an expired grant.
//
// The request may arrive until r.Until, and the recorded heartbeat may be a quarter of the waiter
// TTL older than the last heartbeat.
func isRecent(r driver.AcquireRequest) bool {
	return r.Until.Sub(r.Confirmed) < min(r.HandoffTTL(), driver.WaiterTTL*3/4)
}
