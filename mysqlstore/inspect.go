package mysqlstore

import (
	"context"
	"errors"

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

// InspectAll implements driver.Store.
func (s *Store) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	states := make([]driver.State, len(names))
	for i, name := range names {
		state, err := s.Inspect(ctx, name)
		var wrong *driver.WrongTypeError
		if errors.As(err, &wrong) {
			state, err = wrong.State, nil
		}
		if err != nil {
			return nil, err
		}
		states[i] = state
	}
	return states, nil
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
