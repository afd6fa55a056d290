package pgstore

import (
	"context"
	"errors"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/sqlstore"
	"github.com/jackc/pgx/v5"
)

// Inspect implements driver.Store.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.State{}, err
	}
	state := driver.State{Name: name}
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	rows, err := s.pool.Query(ctx, s.text.inspect, toText(name))
	if err != nil {
		return driver.State{}, unavailable("inspect", name, err)
	}
	var r sqlstore.StateRow
	_, err = pgx.ForEachRow(rows, []any{&r.Kind, &r.Token, &r.Number, &r.Fence, &r.Micros, &r.Reserved}, func() error {
		r.AddTo(&state)
		return nil
	})
	if err != nil {
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
		rows, err := s.pool.Query(ctx, s.text.list, toText(after), most)
		if err != nil {
			return nil, unavailable("list", pattern, err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, unavailable("list", pattern, err)
		}
		for _, text := range texts {
			names = append(names, fromText(text))
		}
		return names, nil
	})
}
