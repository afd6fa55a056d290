package sqlstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/glob"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// A stateRow is a row about a name: a holder (kind h), a waiter (w), or the name itself (n).
type stateRow struct {
	Index    int // the name's index in the query; the first is 1
	Kind     string
	Place    int // rows of a kind are in this order
	Token    string
	Weight   int // a holder's: zero if exclusive
	Limit    int // a waiter's
	Fence    int64
	Micros   int64 // until a holder expires, or since a waiter joined
	Reserved bool
	Total    int // number of all the name's holders, or all its waiters
}

// fields returns the destinations for a row's columns.
func (r *stateRow) fields() []any {
	return []any{&r.Index, &r.Kind, &r.Place, &r.Token, &r.Weight, &r.Limit, &r.Fence, &r.Micros, &r.Reserved, &r.Total}
}

// addTo adds the row's data to a state.
func (r stateRow) addTo(state *driver.State) {
	switch r.Kind {
	case "h":
		h := ownertoken.NewHolder(r.Token, r.Weight)
		h.Fence, h.Remaining, h.Reserved = uint64(r.Fence), Duration(r.Micros), r.Reserved
		state.Holders, state.Holding = append(state.Holders, h), r.Total
	case "w":
		w := ownertoken.NewWaiter(r.Token, r.Weight, r.Limit)
		w.Waited = Duration(r.Micros)
		state.Waiters, state.Waiting = append(state.Waiters, w), r.Total
	default:
		state.Fence = uint64(r.Fence)
	}
}

// maxInspect is the largest number of names in a query. The server needs a few milliseconds for it.
const maxInspect = 500

// InspectAll returns the states of names, in the given order. A query is for 500 names at most, and
// ends within driver.OperationTimeout if ctx has no deadline.
func (d *Database) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	states := make([]driver.State, len(names))
	for i, name := range names {
		if err := driver.CheckName(name); err != nil {
			return nil, err
		}
		states[i].Name = name
	}
	for first := 0; first < len(names); first += maxInspect {
		if err := d.inspect(ctx, states[first:min(first+maxInspect, len(names))]); err != nil {
			name := ""
			if len(names) == 1 {
				name = names[0]
			}
			return nil, d.Unavailable("inspect", name, err)
		}
	}
	return states, nil
}

// inspect adds the database's data to states, which contain their names.
func (d *Database) inspect(ctx context.Context, states []driver.State) error {
	ctx, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
	defer cancel()
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = s.Name
	}
	var r stateRow
	return d.Each(ctx, false, d.SQL.Inspect, []any{d.Ordered(names)}, r.fields(), func() {
		r.Token = d.Decode(r.Token)
		r.addTo(&states[r.Index-1])
	})
}

// Inspect returns a name's state.
func (d *Database) Inspect(ctx context.Context, name string) (driver.State, error) {
	states, err := d.InspectAll(ctx, []string{name})
	if err != nil {
		return driver.State{}, err
	}
	return states[0], nil
}

// List returns the names matching a glob.
func (d *Database) List(ctx context.Context, pattern string) (names []string, err error) {
	matching, err := glob.Parse(pattern)
	if err != nil {
		return nil, err
	}
	const most = 10_000 // in a query
	for name, more := "", true; more; {
		rows := 0
		err := d.Each(ctx, false, d.SQL.List, []any{d.Key(name), most}, []any{&name}, func() {
			rows++
			if name = d.Decode(name); matching.Matches(name) {
				names = append(names, name)
			}
		})
		if err != nil {
			return nil, d.Unavailable("list", pattern, err)
		}
		more = rows == most
	}
	return names, nil
}
