package sqlstore

import (
	"fmt"
	"path"
	"strings"

	"github.com/dibslock/dibs/driver"
)

// A StateRow is a row about a name: a holder (kind h), a waiter (w), or the name itself (n).
type StateRow struct {
	Kind     string
	Token    string
	Number   int // the weight of a holder; of a name, the number of holders
	Fence    int64
	Micros   int64 // until a holder expires, or since a waiter joined; of a name, the number of waiters
	Reserved bool
}

// AddTo adds what the row says to a state.
func (r StateRow) AddTo(state *driver.State) {
	switch r.Kind {
	case "h":
		h := driver.NewHolder(r.Token, r.Number)
		h.Fence, h.Remaining, h.Reserved = uint64(r.Fence), Duration(r.Micros), r.Reserved
		state.Holders = append(state.Holders, h)
	case "w":
		state.Waiters = append(state.Waiters, driver.Waiter{Token: r.Token, Label: driver.LabelOf(r.Token), Waited: Duration(r.Micros)})
	default:
		state.Holding, state.Waiting, state.Fence = r.Number, int(r.Micros), uint64(r.Fence)
	}
}

// List returns the names that match a glob. page returns at most this many names after one, in order.
func List(pattern string, page func(after string, most int) ([]string, error)) (names []string, err error) {
	// A slash in a name is an ordinary character.
	flat := strings.NewReplacer("/", "\x00")
	glob := flat.Replace(pattern)
	if _, err := path.Match(glob, ""); err != nil {
		return nil, fmt.Errorf("%w: pattern %q: %w", driver.ErrInvalid, pattern, err)
	}
	const most = 10_000
	for after := ""; ; {
		next, err := page(after, most)
		if err != nil {
			return nil, err
		}
		for _, name := range next {
			if matches, _ := path.Match(glob, flat.Replace(name)); matches {
				names = append(names, name)
			}
		}
		if len(next) < most {
			return names, nil
		}
		after = next[most-1]
	}
}
