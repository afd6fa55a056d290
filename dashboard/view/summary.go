package view

import (
	"slices"
	"time"
	"unique"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// A Summary contains a name's fields that lists need to count and to sort: a store can have many
// names.
type Summary struct {
	Name    string
	Held    bool
	Foreign bool   // the key holds a value that dibs did not write
	Never   bool   // a lease, or a value that dibs did not write, never expires
	Holding int    // number of leases
	Waiting int    // number of waiters
	Fence   uint64 // the first holder's; zero if unknown. Fences are times
	Longest time.Duration
	Left    time.Duration           // until the first lease expires; -1: never; zero without a holder
	Kind    string                  // from the first holder whose token says it, or KindForeign; empty without a holder
	Hosts   []unique.Handle[string] // for holders and waiters, each once
}

// SummaryOf returns a state's summary.
func SummaryOf(s driver.State) Summary {
	one := Summary{Name: s.Name, Waiting: s.Waiting}
	if s.Foreign != nil {
		one.Foreign, one.Never = true, s.Foreign.NeverExpires()
		if !s.Foreign.Lock {
			s.Holders, s.Holding = nil, 0
		}
	}
	one.Held, one.Holding = len(s.Holders) > 0, max(s.Holding, len(s.Holders))
	for i, h := range s.Holders {
		one.Never = one.Never || h.NeverExpires()
		if i == 0 || !h.NeverExpires() && (one.Left < 0 || h.Remaining < one.Left) {
			one.Left = max(h.Remaining, -1)
		}
	}
	if one.Held {
		one.Fence = s.Holders[0].Fence
		first := firstKnown(s.Holders)
		one.Kind = kindOf(first.Kind, first.Exclusive())
	}
	if one.Foreign {
		one.Kind = KindForeign
	}
	one.addHosts(s)
	for _, w := range s.Waiters {
		one.Longest = max(one.Longest, w.Waited)
	}
	return one
}

// addHosts adds a state's hosts. Many names have few hosts, so each is kept once.
func (n *Summary) addHosts(s driver.State) {
	add := func(token string) {
		if c, ok := ownertoken.ClientOf(token); ok {
			if host := unique.Make(c.Host); !slices.Contains(n.Hosts, host) {
				n.Hosts = append(n.Hosts, host)
			}
		}
	}
	for _, h := range s.Holders {
		add(h.Token)
	}
	for _, w := range s.Waiters {
		add(w.Token)
	}
}

// SummariesOf returns SummaryOf for each state.
func SummariesOf(states []driver.State) []Summary {
	all := make([]Summary, len(states))
	for i, s := range states {
		all[i] = SummaryOf(s)
	}
	return all
}

// A Counts contains totals over many names.
type Counts struct {
	Held    int // names with a holder
	Holding int // all names' leases
	Waited  int // names with waiters
	Waiting int // all names' waiters
	Longest time.Duration
	Never   int // names with a lease, or a value that dibs did not write, that never expires
	Foreign int // names whose key holds a value that dibs did not write
}

// CountsOf counts names.
func CountsOf(names []Summary) (c Counts) {
	for _, n := range names {
		c.Add(n)
	}
	return c
}

// Add counts another name.
func (c *Counts) Add(n Summary) {
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	count(&c.Held, n.Held)
	count(&c.Waited, n.Waiting > 0)
	count(&c.Never, n.Never)
	count(&c.Foreign, n.Foreign)
	c.Holding += n.Holding
	c.Waiting += n.Waiting
	c.Longest = max(c.Longest, n.Longest)
}

// Sort sorts names, already in the order of their names.
func (s Sorting) Sort(names []Summary) { slices.SortStableFunc(names, s.order) }
