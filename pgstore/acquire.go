package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
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
		err = s.acquire(ctx, s.text.acquire, toTexts(c.Names()), c, &reply)
		return reply, err
	}
	name := toText(c.Name)
	if s.quiet.has(name) {
		if err := s.acquireQuiet(ctx, name, c, &reply); !notQuiet(err) {
			return reply, err
		}
		s.quiet.remove(name)
	}
	if err = s.acquire(ctx, s.text.acquireOne, name, c, &reply); reply.Held {
		s.quiet.add(name)
	}
	return reply, err
}

func (s *Store) acquire(ctx context.Context, text string, names any, c driver.AcquireRequest, reply *driver.AcquireReply) error {
	defer s.removeUnused(false)
	v := verb{op: "acquire", name: c.Name, text: text, until: c.Until}
	return s.call(ctx, v, func(until int64) []any {
		return []any{names, toText(c.Token), toText(c.Client), sqlstore.Micros(c.TTL), c.Weight, c.Limit, c.Queue, int64(c.Ticket), until}
	}, scanReply(reply))
}

// acquireQuiet acquires a name if it is free, nobody waits for it, and the request is not late.
// Otherwise it does nothing, and the error is notQuiet.
func (s *Store) acquireQuiet(ctx context.Context, name string, c driver.AcquireRequest, reply *driver.AcquireReply) error {
	defer s.removeUnused(true)
	v := verb{op: "acquire", name: c.Name, text: s.text.acquireQuiet, until: c.Until}
	return s.call(ctx, v, func(until int64) []any {
		return []any{name, toText(c.Token), toText(c.Client), sqlstore.Micros(c.TTL), c.Weight, until}
	}, func(row pgx.Row) (at int64, void bool, err error) {
		var fence int64
		if err = row.Scan(&at, &fence); err == nil {
			*reply = driver.AcquireReply{Held: true, Fence: uint64(fence)}
		}
		return at, false, err
	})
}

// Resize implements driver.Store.
func (s *Store) Resize(ctx context.Context, c driver.AcquireRequest) (reply driver.AcquireReply, err error) {
	if err := driver.CheckAcquire(c); err != nil {
		return reply, err
	}
	v := verb{op: "resize", name: c.Name, text: s.text.resize, until: c.Until}
	err = s.call(ctx, v, func(until int64) []any {
		return []any{toText(c.Name), toText(c.Token), toText(c.Client), sqlstore.Micros(c.TTL), c.Weight, c.Limit, until}
	}, scanReply(&reply))
	return reply, err
}

// scanReply reads the row of an acquire or a resize. Without held, the request was void.
func scanReply(reply *driver.AcquireReply) func(pgx.Row) (at int64, void bool, err error) {
	return func(row pgx.Row) (at int64, void bool, err error) {
		var held, kept *bool
		var name, holder *string
		var fence, remaining, ticket, place *int64
		if err := row.Scan(&at, &held, &fence, &name, &holder, &kept, &remaining, &ticket, &place); err != nil || held == nil {
			return at, held == nil, err
		}
		*reply = driver.AcquireReply{Held: *held}
		if fence != nil { // a resize without a lease has none
			reply.Fence = uint64(*fence)
		}
		if *held {
			return at, false, nil
		}
		reply.Name, reply.Holder, reply.Reserved, reply.Remaining = fromText(*name), fromText(*holder), *kept, sqlstore.Duration(*remaining)
		if ticket != nil && place != nil {
			reply.Ticket, reply.Position = uint64(*ticket), int(*place)
		}
		return at, false, nil
	}
}
