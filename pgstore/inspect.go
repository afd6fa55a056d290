package pgstore

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/dibslock/dibs/driver"
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
	var kind, token string
	var weight int
	var fence, micros int64
	var reserved bool
	_, err = pgx.ForEachRow(rows, []any{&kind, &token, &weight, &fence, &micros, &reserved}, func() error {
		switch kind {
		case "h":
			state.Holders = append(state.Holders, driver.Holder{
				Token: token, Label: driver.LabelOf(token), Weight: weight, Fence: uint64(fence), Remaining: duration(micros), Reserved: reserved,
			})
		case "w":
			state.Waiters = append(state.Waiters, driver.Waiter{Token: token, Label: driver.LabelOf(token), Waited: duration(micros)})
		default:
			state.Holding, state.Waiting, state.Fence = weight, int(micros), uint64(fence)
		}
		return nil
	})
	if err != nil {
		return driver.State{}, unavailable("inspect", name, err)
	}
	return state, nil
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, pattern string) (names []string, err error) {
	// A slash in a name is an ordinary character.
	flat := strings.NewReplacer("/", "\x00")
	pattern = flat.Replace(pattern)
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("%w: pattern %q: %w", driver.ErrInvalid, pattern, err)
	}
	const page = 10_000
	for after := ""; ; {
		rows, err := s.pool.Query(ctx, s.text.list, after, page)
		if err != nil {
			return nil, unavailable("list", "", err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, unavailable("list", "", err)
		}
		for _, text := range texts {
			name := fromText(text)
			if matches, _ := path.Match(pattern, flat.Replace(name)); matches {
				names = append(names, name)
			}
		}
		if len(texts) < page {
			return names, nil
		}
		after = texts[page-1]
	}
}
