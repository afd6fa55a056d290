package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/pipeline"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Replication is asynchronous: if a master dies before a write reaches a replica, the write is
// lost. A lock granted in that moment is granted again by the next master. WithReplicas narrows
// this window.

// WithReplicas makes acquire and extend wait until n replicas confirm the write, for at most
// timeout. It uses the command WAIT on the same connection and, if the adapter can, in the same
// round trip. If too few replicas confirm the write, the error is driver.ErrUnavailable with a
// *ReplicasError. After an acquire, the lock is then released. After an extend, the outcome is
// unknown: the lease may be extended. A request that finds the name busy does not wait for
// replicas.
//
// n is 1 to 1,000, and timeout at least 1 ms; otherwise each request returns driver.ErrInvalid. If
// an operation has less time left, it waits for the replicas until its own deadline.
// docs/replicas.md describes the remaining risks.
func WithReplicas(n int, timeout time.Duration) Option {
	return Option{func(s *settings) { s.replicas = &replication{count: n, timeout: timeout} }}
}

// replication configures how many replicas must confirm a write.
type replication struct {
	count        int
	timeout      time.Duration
	lastTimedOut atomic.Bool // too few had it the last time
}

func (c *replication) check() error {
	const most = 1000
	if c != nil && (c.count < 1 || c.count > most || c.timeout < time.Millisecond) {
		return fmt.Errorf("%w: WithReplicas(%d, %v): 1 to %d replicas, 1ms or more", driver.ErrInvalid, c.count, c.timeout, most)
	}
	return nil
}

// A ReplicasError reports that too few replicas confirmed a write in time: see WithReplicas.
// errors.As finds it in the driver.UnavailableError.
type ReplicasError struct {
	Have, Want int           // how many replicas confirmed the write, and how many are needed
	Within     time.Duration // how long the store waited for them
	Cause      error         // the reason why Have is unknown, or nil
}

func (e *ReplicasError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("unknown whether %d replicas have the write: %v", e.Want, e.Cause)
	}
	return fmt.Sprintf("%d of %d replicas had the write within %v", e.Have, e.Want, e.Within)
}

// Unwrap returns Cause.
func (e *ReplicasError) Unwrap() error { return e.Cause }

// call runs a script. If its grant needs replicas and too few confirm it, replicaErr reports this.
func (s *Store) call(ctx context.Context, r *pipeline.Request, until time.Time, grants func(redisconn.Reply) bool) (reply redisconn.Reply, replicaErr error) {
	if s.replicas == nil {
		reply, _ = s.do(ctx, r, until)
		return reply, nil
	}
	at := s.slots.Of(r.Route)
	at.Until(r, until)
	q := scriptCall{at, r.Cmd}
	q.cmd.Keys, q.cmd.Args = slices.Clone(r.Keys), slices.Clone(r.Args)
	if !s.replicas.lastTimedOut.Load() {
		s.requests.Put(r)
		return s.replicate(ctx, q, until, grants)
	}
	// WAIT would only time out, so it is sent only after a grant. A repeated acquire by
	// the holder changes nothing.
	reply, _ = s.do(ctx, r, until)
	if reply.Err != nil || !grants(reply) {
		return reply, nil
	}
	repeated, replicaErr := s.replicate(ctx, q, until, grants)
	repeated.Err = pipeline.UnknownOutcome(repeated.Err) // the first reply granted it
	return repeated, replicaErr
}

// isGrant reports whether an acquire's reply grants the lock.
func isGrant(r redisconn.Reply) bool {
	if list, _ := r.Value.([]any); len(list) == 3 { // see wire.ParseVote
		_, held := list[2].(string)
		return held
	}
	answer, _, err := wire.ParseAcquire(r.Value)
	return err == nil && answer.Held
}

// anyReply is for extend, which only holders send.
func anyReply(redisconn.Reply) bool { return true }

// A scriptCall is a script call that can be repeated.
type scriptCall struct {
	pipeline *pipeline.Pipeline
	cmd      redisconn.Cmd
}

// replicate sends a script call followed by WAIT, and repeats it as text if the server does not
// know the script. It bounds the caller as a pipeline does, but does not use its batches: a caller
// waiting for replicas would delay other requests on the connection.
func (s *Store) replicate(ctx context.Context, q scriptCall, until time.Time, grants func(redisconn.Reply) bool) (redisconn.Reply, error) {
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	within := s.replicas.waitTime(time.Until(until))
	first, last := s.send(ctx, q, within, grants)
	for {
		var reply redisconn.Reply
		select {
		case reply = <-first:
		case <-ctx.Done():
			select {
			case reply = <-first: // it also arrived in time
			default:
				return redisconn.Reply{Err: context.Cause(ctx)}, nil
			}
		case <-limit.C:
			return redisconn.Reply{Err: pipeline.ErrNoReply}, nil
		}
		if pipeline.IsUnknownScript(reply.Err) && !q.cmd.Whole {
			q.cmd.Whole = true
			first, last = s.send(ctx, q, within, grants)
			continue
		}
		if reply.Err != nil || !grants(reply) {
			return reply, nil
		}
		select {
		case acks := <-last:
			return reply, s.replicas.result(acks, within)
		case <-ctx.Done():
		case <-limit.C:
		}
		return reply, s.replicas.result(redisconn.Reply{Err: errNoAcks}, within)
	}
}

// send sends a script call, and returns channels for its reply and for WAIT's.
func (s *Store) send(ctx context.Context, q scriptCall, within time.Duration, grants func(redisconn.Reply) bool) (first, last <-chan redisconn.Reply) {
	answer, acks := make(chan redisconn.Reply, 1), make(chan redisconn.Reply, 1)
	wait := redisconn.Wait{Replicas: s.replicas.count, Timeout: within}
	sent := time.Now()
	go func() {
		acks <- s.conn.Replicate(context.WithoutCancel(ctx), q.cmd, wait, func(r redisconn.Reply) bool {
			q.pipeline.Learn(r, sent, time.Now())
			answer <- r
			return r.Err == nil && grants(r)
		})
	}()
	return answer, acks
}

// waitTime returns how long to wait for replicas in a call with this much time left. Some time is
// left for the release of an unconfirmed lock.
func (c *replication) waitTime(left time.Duration) time.Duration {
	return max(min(c.timeout, left/4*3).Truncate(time.Millisecond), time.Millisecond)
}

// result returns nil if enough replicas confirmed the write to WAIT.
func (c *replication) result(acks redisconn.Reply, within time.Duration) error {
	have, ok := acks.Value.(int64)
	err := &ReplicasError{Have: int(have), Want: c.count, Within: within, Cause: acks.Err}
	if !ok && acks.Err == nil {
		err.Cause = redisconn.Unexpected(acks.Value)
	}
	enough := err.Cause == nil && err.Have >= c.count
	c.lastTimedOut.Store(!enough)
	if enough {
		return nil
	}
	return err
}

// undoGrant cancels a granted acquire that too few replicas have.
func (s *Store) undoGrant(ctx context.Context, op acquireOp, r driver.AcquireRequest, replicaErr error) error {
	if op == resize { // the former lease is still held
		return wrapError(string(op), r.Name, replicaErr)
	}
	if err := s.Cancel(context.WithoutCancel(ctx), r); err != nil {
		// The cancel may still arrive, and must not meet the next try with this token.
		select {
		case <-time.After(time.Until(r.Until)):
		case <-ctx.Done():
		}
		return &driver.UnavailableError{Op: string(op), Name: r.Name, Cause: fmt.Errorf("%w, and the lock could not be released: %w", replicaErr, err)}
	}
	return &driver.UnavailableError{
		Op: string(op), Name: r.Name, Refused: true, Cause: fmt.Errorf("%w, so the lock was released", replicaErr),
	}
}

var errNoAcks = errors.New("no reply to WAIT in time")
