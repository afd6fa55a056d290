package sqlstore

import (
	"context"

	"github.com/dibslock/dibs/driver"
)

// A StateRow is a row about a name: a holder (kind h), a waiter (w), or the name itself (n).
type StateRow struct {
	Index    int // of the name in the query; the first is 1
	Kind     string
	Place    int // rows of one kind are in this order
	Token    string
	Weight   int // of a holder: zero if exclusive
	Limit    int // of a waiter
	Fence    int64
	Micros   int64 // until a holder expires, or since a waiter joined
	Reserved bool
	Total    int // number of all holders, or of all waiters, of the name
}

// Fields returns where the columns of a row are stored.
func (r *StateRow) Fields() []any {
	return []any{&r.Index, &r.Kind, &r.Place, &r.Token, &r.Weight, &r.Limit, &r.Fence, &r.Micros, &r.Reserved, &r.Total}
}

// addTo adds what the row says to a state.
func (r StateRow) addTo(state *driver.State) {
	switch r.Kind {
	case "h":
		h := driver.NewHolder(r.Token, r.Weight)
		h.Fence, h.Remaining, h.Reserved = uint64(r.Fence), Duration(r.Micros), r.Reserved
		state.Holders, state.Holding = append(state.Holders, h), r.Total
	case "w":
		w := driver.NewWaiter(r.Token, r.Weight, r.Limit)
		w.Waited = Duration(r.Micros)
		state.Waiters, state.Waiting = append(state.Waiters, w), r.Total
	default:
		state.Fence = uint64(r.Fence)
	}
}

// maxInspect is the largest number of names in one query. The server needs a few milliseconds
// for it.
const maxInspect = 500

// InspectAll returns the states of names, in their order. It checks the names, and calls query
// for some of them at a time, each time within driver.OperationTimeout unless ctx has a
// deadline. query calls add for each row of its reply.
func InspectAll(ctx context.Context, names []string, query func(ctx context.Context, names []string, add func(StateRow)) error) ([]driver.State, error) {
	states := make([]driver.State, len(names))
	for i, name := range names {
		if err := driver.CheckName(name); err != nil {
			return nil, err
		}
		states[i].Name = name
	}
	for first := 0; first < len(names); first += maxInspect {
		part := states[first:min(first+maxInspect, len(names))]
		within, cancel := context.WithDeadline(ctx, driver.DeadlineOf(ctx))
		err := query(within, names[first:first+len(part)], func(r StateRow) { r.addTo(&part[r.Index-1]) })
		cancel()
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// Inspect returns the state of one name. query is as for InspectAll.
func Inspect(ctx context.Context, name string, query func(ctx context.Context, names []string, add func(StateRow)) error) (driver.State, error) {
	states, err := InspectAll(ctx, []string{name}, query)
	if err != nil {
		return driver.State{}, err
	}
	return states[0], nil
}

// List returns the names that match a glob. page returns at most this many names after one, in order.
func List(pattern string, page func(after string, most int) ([]string, error)) (names []string, err error) {
	glob, err := driver.ParseGlob(pattern)
	if err != nil {
		return nil, err
	}
	const most = 10_000
	for after := ""; ; {
		next, err := page(after, most)
		if err != nil {
			return nil, err
		}
		for _, name := range next {
			if glob.Matches(name) {
				names = append(names, name)
			}
		}
		if len(next) < most {
			return names, nil
		}
		after = next[most-1]
	}
}
