package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
)

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := check(c); err != nil {
		return reply, err
	}
	s.kept.need(c.TTL)
	v := verb{op: "acquire", name: c.Name, text: s.text.acquire, until: c.Until}
	err = s.call(ctx, v, func(until int64) []any {
		return []any{listOf(c.Names()...), []byte(c.Token), []byte(c.Client), sqlstore.Micros(c.TTL), c.Weight, c.Limit, c.Queue, int64(c.Ticket), until}
	}, scanReply(&reply))
	if reply.Ticket != 0 {
		s.fetches.waits(c.Client)
	}
	if reply.Position == 1 {
		s.fetches.queued()
	}
	s.removeUnused()
	return reply, err
}

// Resize implements driver.Store.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := check(c); err != nil {
		return reply, err
	}
	v := verb{op: "resize", name: c.Name, text: s.text.resize, until: c.Until}
	err = s.call(ctx, v, func(until int64) []any {
		return []any{listOf(c.Name), []byte(c.Token), []byte(c.Client), sqlstore.Micros(c.TTL), c.Weight, c.Limit, until}
	}, scanReply(&reply))
	s.fetches.changed()
	return reply, err
}

// scanReply reads the row of an acquire or a resize. Without held, the request was void.
func scanReply(reply *driver.AcquireReply) func(*sql.Row) (at int64, void bool, err error) {
	return func(row *sql.Row) (at int64, void bool, err error) {
		var held, kept sql.NullBool
		var name, holder []byte
		var fence, remaining, ticket, place sql.NullInt64
		if err := row.Scan(&at, &held, &fence, &name, &holder, &kept, &remaining, &ticket, &place); err != nil || !held.Valid {
			return at, !held.Valid, err
		}
		if held.Bool {
			*reply = driver.AcquireReply{Held: true, Fence: uint64(fence.Int64)}
			return at, false, nil
		}
		*reply = driver.AcquireReply{
			Fence: uint64(fence.Int64), Name: string(name), Holder: string(holder), Reserved: kept.Bool, Remaining: sqlstore.Duration(remaining.Int64),
			Ticket: uint64(ticket.Int64), Position: int(place.Int64),
		}
		return at, false, nil
	}
}
