package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/foreign"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// maxListed is the maximum number of holders, and also of waiters, in a State.
const maxListed = 100

// Inspect implements driver.Inspector. If the key holds a value of another type, Inspect sends a
// second request, which describes the value. If the value disappears before the second request,
// such as another library's lock after its release, Inspect reads the name again.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	state, err := s.inspect(ctx, name)
	var wrong *driver.WrongTypeError
	if errors.As(err, &wrong) && wrong.State.Foreign == nil {
		return s.inspect(ctx, name)
	}
	return state, err
}

func (s *Store) inspect(ctx context.Context, name string) (driver.State, error) {
	if err := s.check(name); err != nil {
		return driver.State{}, err
	}
	found, now, err := s.requestStates(ctx, []string{name})
	if err == nil {
		err = found[0].Err
	}
	if err != nil {
		return driver.State{}, s.wrapReplyError(ctx, driver.DeadlineOf(ctx), "inspect", []string{name}, err)
	}
	return s.recognise(ctx, found[0].State, now), nil
}

// requestStates makes one inspect call. It returns at least the first state, and the server's time.
func (s *Store) requestStates(ctx context.Context, names []string) (found []wire.Inspected, now int64, err error) {
	reply := s.read(ctx, driver.DeadlineOf(ctx), func(r *wire.Request) { s.format.Inspect(r, names, maxListed) })
	if reply.Err != nil {
		return nil, 0, reply.Err
	}
	now, _ = wire.ServerTime(reply)
	found, err = wire.ParseStates(names, maxListed, reply.Value)
	return found, now, err
}

// recognise completes a name's state if another library's client can hold it.
func (s *Store) recognise(ctx context.Context, state driver.State, now int64) driver.State {
	if s.format.Redisson {
		return s.recogniseRedisson(ctx, state)
	}
	s.recogniseString(&state, now)
	return state
}

// List implements driver.Lister. It scans the whole keyspace with SCAN, on each master. It lists
// each key that can be a lock, but not the auxiliary keys of other libraries.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	if s.format.Proxy {
		return nil, fmt.Errorf("%w: list %q: a proxy cannot list keys: list each server behind it, with its own address and without Proxy", driver.ErrInvalid, pattern)
	}
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
