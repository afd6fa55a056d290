package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Replication. A master that dies takes with it what no replica has: a lock granted in
// that moment is granted again by the next master. WithReplicas narrows this.

// WithReplicas makes acquiring and renewing wait, for timeout at most, until n replicas
// have the write: on the same connection and, where the adapter can, in the same round
// trip. It waits for n, not for all. If fewer have it, what was acquired is given back,
// and the error is dibs.ErrUnavailable and says how many answered; a renewal counts as
// not answered. Those who find a name taken do not wait.
//
// docs/replicas.md says what this narrows and what it cannot close. n is 1 to 1,000,
// timeout at least 1 ms; it is shortened to the time that an operation has.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(s *Store) { s.copies = &replication{want: n, within: timeout} }
}

// copies is how many replicas must have a write.
type replication struct {
	want   int
	within time.Duration
	silent atomic.Bool // they had not, when they were last asked
}

func (c *replication) check() error {
	const most = 1000
	if c != nil && (c.want < 1 || c.want > most || c.within < time.Millisecond) {
		return fmt.Errorf("%w: WithReplicas(%d, %v): 1 to %d replicas, 1ms or more", driver.ErrInvalid, c.want, c.within, most)
	}
	return nil
}

// A ReplicasError says that too few replicas had a write, and is the cause of a
// dibs.ErrUnavailable.
type ReplicasError struct {
	Have, Want int
	Within     time.Duration
	Cause      error // why it is not known how many; nil if it is
}

func (e *ReplicasError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("not known whether %d of the replicas have it: %v", e.Want, e.Cause)
	}
	return fmt.Sprintf("%d of %d replicas had it within %v", e.Have, e.Want, e.Within)
}

// Unwrap returns Cause.
func (e *ReplicasError) Unwrap() error { return e.Cause }

// call runs a script. If replicas must have what it grants, and too few do, short says
// so.
func (s *Store) call(ctx context.Context, r *request, until time.Time, grants func(Reply) bool) (reply Reply, short error) {
	if s.copies == nil {
		reply, _ = r.slot.pipeliner.do(ctx, r, until)
		return reply, nil
	}
	r.voidAfter(r.slot.clock.latest(until))
	q := question{script: r.script, shard: r.slot, cmd: slices.Clone(r.cmd)}
	if !s.copies.silent.Load() {
		r.slot.pipeliner.requests.put(r)
		return s.replicate(ctx, q, until, grants)
	}
	// Nobody would answer WAIT before its time: only who is granted something asks
	// it. To ask again for what is held changes nothing.
	reply, _ = r.slot.pipeliner.do(ctx, r, until)
	if reply.Err != nil || !grants(reply) {
		return reply, nil
	}
	again, short := s.replicate(ctx, q, until, grants)
	again.Err = unknown(again.Err) // it is held since the first answer
	return again, short
}

// grants reports whether an answer to a claim says that it is held.
func grants(r Reply) bool {
	if list, _ := r.Value.([]any); len(list) == 3 { // see parseVote
		_, held := list[2].(string)
		return held
	}
	answer, _, err := parseAcquireReply(r.Value)
	return err == nil && answer.Held
}

// always is for what is not claimed: whoever extends holds.
func always(Reply) bool { return true }

// A question is a script call that may be sent again.
type question struct {
	script *script
	shard  *slotState
	cmd    Cmd
}

// replicate puts a question with WAIT behind it, whole if the server does not know
// the script. It bounds the caller as the pump does, and has no part in its batches:
// one who waits for replicas keeps a connection busy for others.
func (s *Store) replicate(ctx context.Context, q question, until time.Time, grants func(Reply) bool) (Reply, error) {
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	within := s.copies.bound(time.Until(until))
	first, last := s.send(ctx, q, within, grants)
	for whole := false; ; whole = true {
		var reply Reply
		select {
		case reply = <-first:
		case <-ctx.Done():
			select {
			case reply = <-first: // came in time, too
			default:
				return Reply{Err: context.Cause(ctx)}, nil
			}
		case <-limit.C:
			return Reply{Err: errLate}, nil
		}
		if unknownScript(reply.Err) && !whole {
			q.cmd = append(Cmd{"EVAL", q.script.text}, q.cmd[2:]...)
			first, last = s.send(ctx, q, within, grants)
			continue
		}
		if reply.Err != nil || !grants(reply) {
			return reply, nil
		}
		select {
		case acks := <-last:
			return reply, s.copies.result(acks, within)
		case <-ctx.Done():
		case <-limit.C:
		}
		return reply, s.copies.result(Reply{Err: errSilent}, within)
	}
}

// send puts a question, and returns where its answer and WAIT's come.
func (s *Store) send(ctx context.Context, q question, within time.Duration, grants func(Reply) bool) (first, last <-chan Reply) {
	answer, acks := make(chan Reply, 1), make(chan Reply, 1)
	wait := Cmd{"WAIT", count(s.copies.want), decimal(milliseconds(within))}
	sent := time.Now()
	go func() {
		acks <- s.conn.Replicate(context.WithoutCancel(ctx), q.cmd, wait, func(r Reply) bool {
			q.shard.clock.observeError(r.Err)
			if now, ok := serverTime(r); ok {
				q.shard.clock.learn(sent, time.Now(), now)
			}
			answer <- r
			return r.Err == nil && grants(r)
		})
	}()
	return answer, acks
}

// bound is how long to wait for replicas in a call that has so much time: some of it
// is left to give back what they have not confirmed.
func (c *replication) bound(left time.Duration) time.Duration {
	return max(min(c.within, left*3/4).Truncate(time.Millisecond), time.Millisecond)
}

// judge returns nil if WAIT's reply says that enough replicas have the write.
func (c *replication) result(acks Reply, within time.Duration) error {
	have, ok := acks.Value.(int64)
	err := &ReplicasError{Have: int(have), Want: c.want, Within: within, Cause: acks.Err}
	if !ok && acks.Err == nil {
		err.Cause = unexpected(acks.Value)
	}
	enough := err.Cause == nil && err.Have >= c.want
	c.silent.Store(!enough)
	if enough {
		return nil
	}
	return err
}

// giveBack undoes a claim that was granted and that too few replicas have.
func (s *Store) undoGrant(ctx context.Context, op acquireOp, c driver.AcquireRequest, short error) error {
	if op == reweigh { // what was held before is held still
		return fail(string(op), c.Name, short)
	}
	if err := s.Cancel(context.WithoutCancel(ctx), c); err != nil {
		// It may arrive yet, and must not meet the next try with this token.
		select {
		case <-time.After(time.Until(c.Until)):
		case <-ctx.Done():
		}
		return &driver.UnavailableError{Op: string(op), Name: c.Name, Cause: fmt.Errorf("%w, and it could not be given back: %w", short, err)}
	}
	return &driver.UnavailableError{
		Op: string(op), Name: c.Name, Refused: true, Cause: fmt.Errorf("%w, so it was given back", short),
	}
}

var errSilent = errors.New("no answer from the replicas in time")
