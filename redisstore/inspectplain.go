package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// plain reports whether names are inspected by plain commands first. On a cluster a command without
// a script contains no key, so a client cannot find the node. Without a prefix most values may be
// data, and the script reads them only in part. With a prefix this is so once such a value was
// found.
func (s *Store) plain() bool {
	return !s.format.Sharded && !s.format.Redisson && s.format.Prefix != "" && !s.hasData.Load()
}

// maxPlain is the size of the largest possible lock value, in bytes: see inspect.lua.
const maxPlain = 4096

// inspectPlain sets the states of names readable by plain commands. The script reads all other
// names afterwards, including those whose command failed. For 10,000 names this costs the server 31
// ms, and the script alone 61 ms.
func (a *inspection) inspectPlain(ctx context.Context) {
	batches := (len(a.names) + wire.MaxNames - 1) / wire.MaxNames
	_ = forEach(ctx, batches, a.atOnce(), func(ctx context.Context, i int) error {
		if !a.s.plain() {
			return nil
		}
		first := i * wire.MaxNames
		return a.inspectPlainBatch(ctx, first, min(first+wire.MaxNames, len(a.names)))
	})
}

// inspectPlainBatch inspects the names from first to before end. It returns an error if the
// connection failed.
func (a *inspection) inspectPlainBatch(ctx context.Context, first, end int) error {
	cmds := make([]redisconn.Cmd, 0, (end-first)*wire.PlainCommands)
	for _, name := range a.names[first:end] {
		cmds = a.s.format.AppendPlain(cmds, name)
	}
	replies, err := a.s.exchange(ctx, cmds)
	if err != nil {
		return err
	}
	for i, r := range replies {
		var refusal redisconn.ServerError
		if r.Err != nil && !errors.As(r.Err, &refusal) {
			return r.Err
		}
		if text, _ := r.Value.(string); i%wire.PlainCommands == 1 && len(text) > maxPlain {
			a.s.hasData.Store(true)
		}
	}
	for i := first; i < end; i++ {
		at := (i - first) * wire.PlainCommands
		a.states[i], a.known[i] = wire.ParsePlain(a.names[i], replies[at:at+wire.PlainCommands])
	}
	return nil
}

// exchange sends read-only commands in one round trip. It returns when ctx ends, even if the Conn
// does not.
func (s *Store) exchange(ctx context.Context, cmds []redisconn.Cmd) ([]redisconn.Reply, error) {
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	done := make(chan []redisconn.Reply, 1)
	go func() {
		replies := make([]redisconn.Reply, len(cmds))
		s.conn.Do(context.WithoutCancel(ctx), time.Time{}, cmds, replies)
		done <- replies
	}()
	select {
	case replies := <-done:
		return replies, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
