package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

const acquireSQL = `SELECT * FROM dibs.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9)`

const acquireOneSQL = `SELECT * FROM dibs.acquire_one($1, $2, $3, $4, $5, $6, $7, $8, $9)`

const resizeSQL = `SELECT at, held, new_fence, $1, holder, kept, remaining, 0, 0 FROM dibs.resize($1, $2, $3, $4, $5, $6, $7)`

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := driver.CheckAcquire(c); err != nil {
		return reply, err
	}
	if len(c.With) > 0 || !c.Exclusive() {
		defer s.db.RemoveUnused(false)
		return s.db.Acquire(ctx, s.text.acquire, toTexts(c.Names()), c)
	}
	name := toText(c.Name)
	if s.quiet.has(name) {
		if reply, err := s.acquireQuiet(ctx, name, c); !notQuiet(err) {
			return reply, err
		}
		s.quiet.remove(name)
	}
	defer s.db.RemoveUnused(false)
	if reply, err = s.db.Acquire(ctx, s.text.acquireOne, name, c); reply.Held {
		s.quiet.add(name)
	}
	return reply, err
}

// acquireQuiet acquires a name if it is free, nobody waits for it, and the request is not late.
// Otherwise it does nothing, and the error is notQuiet.
func (s *Store) acquireQuiet(ctx context.Context, name string, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	defer s.db.RemoveUnused(true)
	v := sqlstore.Verb{Op: "acquire", Name: c.Name, Text: s.text.acquireQuiet, Until: c.Until}
	err = s.db.Call(ctx, v, func(until int64) []any {
		return []any{name, toText(c.Token), toText(c.Client), sqlstore.Micros(c.TTL), c.Weight, until}
	}, func(row sqlstore.Row) (at int64, void bool, err error) {
		var fence int64
		if err = row.Scan(&at, &fence); err == nil {
			reply = driver.AcquireReply{Held: true, Fence: uint64(fence)}
		}
		return at, false, err
	})
	return reply, err
}

// Resize implements driver.Resizer.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := driver.CheckAcquire(c); err != nil {
		return reply, err
	}
	return s.db.Resize(ctx, c)
}
