package redisstore

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Inspect implements driver.Store. If a value of another type is gone before it could be
// described, as a lock of another library that was released, it inspects the name again.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	state, err := s.inspect(ctx, name)
	var wrong *driver.WrongTypeError
	if errors.As(err, &wrong) && wrong.State.Foreign == nil {
		return s.inspect(ctx, name)
	}
	return state, err
}

func (s *Store) inspect(ctx context.Context, name string) (driver.State, error) {
	const most = 100
	if err := s.check(name); err != nil {
		return driver.State{}, err
	}
	r := s.requests.Get()
	s.format.Inspect(&r.Request, name, most)
	reply, _ := s.do(ctx, r, driver.DeadlineOf(ctx))
	if reply.Err != nil {
		return driver.State{}, s.wrapReplyError(ctx, driver.DeadlineOf(ctx), "inspect", []string{name}, reply.Err)
	}
	state, err := wire.ParseState(name, reply.Value)
	if err != nil {
		return driver.State{}, wrapError("inspect", name, err)
	}
	if s.format.Redisson != nil {
		return s.recogniseRedisson(ctx, state), nil
	}
	now, _ := wire.ServerTime(reply)
	s.recogniseString(&state, now)
	return state, nil
}

// InspectAll implements driver.Store.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	states := make([]driver.State, len(names))
	for i, name := range names {
		state, err := s.Inspect(ctx, name)
		var wrong *driver.WrongTypeError
		if errors.As(err, &wrong) {
			state, err = wrong.State, nil
		}
		if err != nil {
			return nil, err
		}
		states[i] = state
	}
	return states, nil
}

// List implements driver.Store. It scans the whole keyspace. It lists each key that may be a
// lock, and none that other libraries have beside their locks.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	found := make(map[string]bool) // SCAN may return a key twice
	err := s.conn.Masters(ctx, func(n redisconn.Node) error {
		return n.Scan(ctx, redisconn.Quote(s.format.Prefix)+pattern, func(key string) {
			name := key[len(s.format.Prefix):]
			if driver.CheckName(name) == nil && wire.CheckKey(key) == nil && !foreign.IsInner(key) {
				found[name] = true
			}
		})
	})
	if err != nil {
		return nil, wrapError("list", pattern, err)
	}
	return slices.Collect(maps.Keys(found)), nil
}
