package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
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
	if err := s.inspectRows(ctx, names, add); err != nil {
		return unavailable("inspect", nameOf(names), err)
	}
	return nil
}

func (s *Store) inspectRows(ctx context.Context, names []string, add func(sqlstore.StateRow)) error {
	list := make([][2]any, len(names)) // as list_of reads it
	for i, name := range names {
		list[i] = [2]any{i + 1, hexOf(name)}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // numbers and hexadecimal texts can be encoded
	}
	return s.use(ctx, func(conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, s.text.inspect, string(text))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r sqlstore.StateRow
			if err := rows.Scan(r.Fields()...); err != nil {
				return err
			}
			add(r)
		}
		return rows.Err()
	})
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
		err = s.use(ctx, func(conn *sql.Conn) error {
			rows, err := conn.QueryContext(ctx, s.text.list, hexOf(after), most)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var name []byte
				if err := rows.Scan(&name); err != nil {
					return err
				}
				names = append(names, string(name))
			}
			return rows.Err()
		})
		if err != nil {
			return nil, unavailable("list", pattern, err)
		}
		return names, nil
	})
}
