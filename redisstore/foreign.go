package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

var _ driver.ForeignRevoker = (*Store)(nil)

// errOtherType stands for extend's reply about a key with another type.
var errOtherType = redisconn.ServerError("WRONGTYPE")

// wrapReplyError is wrapError for the reply to an operation on some names. If a key holds a value
// with another type, it makes another call until a time, to describe the value. The description is
// a courtesy: without it, for example if the user may not read the value, the error is otherwise
// the same.
func (s *Store) wrapReplyError(ctx context.Context, until time.Time, op string, names []string, err error) error {
	wrapped := wrapError(op, names[0], err)
	var wrong *driver.WrongTypeError
	if errors.As(wrapped, &wrong) {
		if state, ok := s.describe(ctx, until, names); ok {
			wrong.Name, wrong.State = state.Name, state
		}
	}
	return wrapped
}

// describe returns the state of the first name whose key has another type.
func (s *Store) describe(ctx context.Context, until time.Time, names []string) (state driver.State, ok bool) {
	var keys []string
	reply := s.read(ctx, until, func(r *wire.Request) {
		s.format.Describe(r, names)
		keys = append(keys[:0], r.Keys...)
	})
	if reply.Err != nil {
		return driver.State{}, false
	}
	value, index, err := wire.ParseDescription(reply.Value)
	if err != nil || index < 0 || index >= len(keys) {
		return driver.State{}, false
	}
	perName := len(keys) / len(names)
	value.Key, value.Bare = keys[index], s.format.Prefix == ""
	state = driver.State{Name: names[index/perName]}
	s.setForeign(&state, value, index%perName != 0)
	return state, true
}

// setForeign completes a state with a value's description. own reports whether the key is a dibs
// key beside a lock, where nothing else is a lock.
func (s *Store) setForeign(state *driver.State, v foreign.Value, own bool) {
	d := foreign.Describe(v)
	if own {
		d = foreign.Description{Kind: d.Kind}
	}
	state.Foreign = &driver.Foreign{
		Key: v.Key, Type: v.Type, Kind: d.Kind, Remaining: v.TTL, Lock: d.Lock,
		Advice: d.Advice(v, own) + s.redissonAdvice(d),
	}
	if d.Removable(v) {
		state.Foreign.Mark = v
	}
	if d.Lock {
		state.Holders, state.Holding = d.Holders, d.Holding
	}
}

// recogniseString describes the lock key if dibs did not write its value. A user's token has a
// recorded fence, which proves that dibs wrote it, whatever its form.
func (s *Store) recogniseString(state *driver.State, now int64) {
	if len(state.Holders) != 1 {
		return
	}
	h := state.Holders[0]
	if h.Weight != 0 || h.Fence != 0 || h.Reserved || foreign.IsDibs(h.Token) {
		return
	}
	s.setForeign(state, foreign.Value{
		Key: s.format.Prefix + state.Name, Bare: s.format.Prefix == "", Type: "string", TTL: h.Remaining,
		Size: len(h.Token), Items: []foreign.Item{{Name: h.Token}}, Now: now,
	}, false)
}

// RevokeForeign implements driver.ForeignRevoker. It deletes the lock's key. For a Redisson lock it
// also notifies Redisson's waiters, in the same way as Redisson's forceUnlock. For a lock whose
// value is a string, it does not notify the other library's waiters.
//
// It deletes the key only if the lock is still the same as in seen. A Redisson lock must have the
// same owner and the same count of reentrant locks. A string must have the same value. If the value
// is not unique to the owner, such as "1", the expiry must also be the same.
func (s *Store) RevokeForeign(ctx context.Context, name string, seen driver.Foreign) (did string, err error) {
	const op = "revoke"
	if err := s.check(name); err != nil {
		return "", err
	}
	value, ok := seen.Mark.(foreign.Value)
	if !ok || value.Key != s.format.Prefix+name {
		return "", fmt.Errorf("%w: %s %q: not a foreign lock that dibs can end", driver.ErrInvalid, op, name)
	}
	d := foreign.Describe(value)
	r := s.requests.Get()
	s.format.RevokeForeign(&r.Request, name, value, d.Release, expiryOf(d, value))
	reply, retried := s.do(ctx, r, driver.DeadlineOf(ctx))
	if reply.Err != nil {
		return "", s.wrapReplyError(ctx, driver.DeadlineOf(ctx), op, []string{name}, reply.Err)
	}
	ended, notified, err := wire.ParseForeignRevocation(reply.Value)
	switch {
	case err != nil:
		return "", wrapError(op, name, err)
	case !ended && retried:
		return "", wrapError(op, name, errOutcomeUnknown)
	case !ended:
		return "", nil
	}
	did = "deleted the key " + value.Key
	if d.Release.Channel != "" {
		did += fmt.Sprintf(", and published %s on %s (subscribers: %d)", d.Release.Message, d.Release.Channel, notified)
	}
	return did, nil
}

// expiryOf returns when a lock expires by the server's clock, if the expiry is needed to
// distinguish it from a later lock.
func expiryOf(d foreign.Description, v foreign.Value) time.Time {
	if d.Unique {
		return time.Time{}
	}
	return time.UnixMicro(v.Now).Add(v.TTL)
}
