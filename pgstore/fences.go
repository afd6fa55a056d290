package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dibslock/dibs/driver"
)

const reserveFencesSQL = `SELECT at, held, last FROM dibs.reserve_fences($1, $2, $3, $4, $5)`

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (reply driver.FenceReply, err error) {
	if err := driver.CheckFences(r); err != nil {
		return reply, err
	}
	v := verb{op: "reserve fences", name: r.Name, text: s.text.reserveFences}
	err = s.call(ctx, v, func(until int64) []any {
		return []any{toText(r.Name), toText(r.Token), r.Count, int64(r.Least), until}
	}, scanFences(&reply))
	return reply, err
}

// scanFences reads the server's time, and the reply, whose held is null if the request was void.
func scanFences(reply *driver.FenceReply) func(pgx.Row) (at int64, void bool, err error) {
	return func(row pgx.Row) (at int64, void bool, err error) {
		var held *bool
		var last *int64
		if err := row.Scan(&at, &held, &last); err != nil || held == nil {
			return at, held == nil, err
		}
		if *held {
			*reply = driver.FenceReply{Held: true, Last: uint64(*last)}
		}
		return at, false, nil
	}
}
