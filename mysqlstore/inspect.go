package mysqlstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
)

// Inspect implements driver.Store.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	n := hexOf(name)
	rows, err := s.db.QueryContext(ctx, s.text.inspect, n, n, n, n)
	if err != nil {
		return driver.State{}, unavailable("inspect", name, err)
	}
	defer rows.Close()
	state := driver.State{Name: name}
	for rows.Next() {
		var r sqlstore.StateRow
		if err := rows.Scan(&r.Kind, &r.Token, &r.Number, &r.Fence, &r.Micros, &r.Reserved); err != nil {
			return driver.State{}, unavailable("inspect", name, err)
		}
		r.AddTo(&state)
	}
	if err := rows.Err(); err != nil {
		return driver.State{}, unavailable("inspect", name, err)
	}
	return state, nil
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	return sqlstore.List(pattern, func(after string, most int) (names []string, err error) {
		rows, err := s.db.QueryContext(ctx, s.text.list, hexOf(after), most)
		if err != nil {
			return nil, unavailable("list", pattern, err)
		}
		defer rows.Close()
		for rows.Next() {
			var name []byte
			if err := rows.Scan(&name); err != nil {
				return nil, unavailable("list", pattern, err)
			}
			names = append(names, string(name))
		}
		if err := rows.Err(); err != nil {
			return nil, unavailable("list", pattern, err)
		}
		return names, nil
	})
}
