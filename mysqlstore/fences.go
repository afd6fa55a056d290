package mysqlstore

import (
	"context"
	"database/sql"

	"github.com/dibslock/dibs/driver"
)

// ReserveFences implements driver.FenceReserver.
func (s *Store) ReserveFences(ctx context.Context, r driver.FenceRequest) (reply driver.FenceReply, err error) {
	if err := driver.CheckFences(r); err != nil {
		return reply, err
	}
	v := verb{op: "reserve fences", name: r.Name, text: s.text.reserveFences}
	err = s.call(ctx, v, func(until int64) []any {
		return []any{listOf(r.Name), []byte(r.Token), r.Count, int64(r.Least), until}
	}, scanFences(&reply))
	return reply, err
}

// scanFences reads the server's time, and the reply, whose held is null if the request was void.
func scanFences(reply *driver.FenceReply) func(*sql.Row) (at int64, void bool, err error) {
	return func(row *sql.Row) (at int64, void bool, err error) {
		var held sql.NullBool
		var last sql.NullInt64
		if err := row.Scan(&at, &held, &last); err != nil || !held.Valid {
			return at, !held.Valid, err
		}
		if held.Bool {
			*reply = driver.FenceReply{Held: true, Last: uint64(last.Int64)}
		}
		return at, false, nil
	}
}
