package pgstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

// Inspect implements driver.Store.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	return sqlstore.Inspect(ctx, name, s.inspect)
}

// InspectAll implements driver.Store. A query is for 500 names at most. If ctx has no deadline,
// driver.OperationTimeout bounds each query.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	return sqlstore.InspectAll(ctx, names, s.inspect)
}

// inspect queries the states of names.
func (s *Store) inspect(ctx context.Context, names []string, add func(sqlstore.StateRow)) error {
	var r sqlstore.StateRow
	err := s.conns.use(ctx, false, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, s.text.inspect, toTexts(names))
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, r.Fields(), func() error {
			r.Token = fromText(r.Token)
			add(r)
			return nil
		})
		return err
	})
	if err != nil {
		return unavailable("inspect", nameOf(names), err)
	}
	return nil
}

// nameOf returns the name for an error: none if there are several.
func nameOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return ""
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	return sqlstore.List(pattern, func(after string, most int) (names []string, err error) {
		var texts []string
		err = s.conns.use(ctx, false, func(conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, s.text.list, toText(after), most)
			if err == nil {
				texts, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		})
		if err != nil {
			return nil, unavailable("list", pattern, err)
		}
		for _, text := range texts {
			names = append(names, fromText(text))
		}
		return names, nil
	})
}
