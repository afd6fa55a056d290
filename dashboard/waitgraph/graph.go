package waitgraph

import (
	"cmp"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/ownertoken"
)

// A Graph says which process waits for which.
type Graph struct {
	Processes []Process // those in cycles first, then by the longest wait, then by how much they hold
	Waits     []Wait    // by name
	Cycles    []Cycle   // a cycle for each group of processes that wait for each other; sure cycles first
	Partial   bool      // there are more waits: cycles may be missing
}

// A Process is a dibs client in a process, with its leases and waits. Two goroutines in the same
// process are a single Process.
type Process struct {
	Host  string
	PID   int
	ID    string  // distinguishes clients with the same host and process; not a secret
	Holds []Entry // by name
	Waits []Entry // the longest wait first

	twin bool // another client has the same host and process
}

// An Entry is a lease, or a place in a wait queue.
type Entry struct {
	Name      string        `json:"name"`
	Kind      driver.Kind   `json:"kind,omitempty"` // empty if not known
	Label     string        `json:"label,omitempty"`
	Fence     uint64        `json:"fence,omitempty"`    // for a lease; zero if unknown
	Weight    int           `json:"weight,omitempty"`   // zero for an exclusive holder
	Limit     int           `json:"limit,omitempty"`    // zero is not known
	Position  int           `json:"position,omitempty"` // for a waiter; 1 is served next
	Reserved  bool          `json:"reserved,omitempty"` // the lease was released, and the name stays unavailable
	Remaining time.Duration `json:"-"`                  // for a lease
	Waited    time.Duration `json:"-"`                  // for a waiter
}

// A Wait says that a process waits for a name that another process holds.
type Wait struct {
	Waiter, Holder int // indices in Graph.Processes
	Name           string
	InCycle        bool // the holder waits for the waiter, too, perhaps through others
}

// A Cycle is processes that wait for each other. Each holds a name that the process before it waits
// for. The first process holds a name that the last process waits for.
//
// It need not be a deadlock. A process can hold a name in one goroutine and wait for another name
// in another goroutine, and a wait can have a limit.
type Cycle struct {
	Waits []Wait
	Sure  bool // no wait is for permits, where another holder may make room
}

// Of returns the graph for some states. Foreign locks are not part of it, because their tokens name
// no process. A state has at most 100 holders and 100 waiters, so the graph can be incomplete.
func Of(states []driver.State) Graph {
	b := builder{index: make(map[string]int)}
	for _, s := range states {
		b.add(s)
	}
	b.markCycles()
	b.markTwins()
	return b.sorted()
}

// A builder collects the processes and their waits.
type builder struct {
	Graph
	index   map[string]int  // a process's index, by client
	permits map[string]bool // names whose permits are held
}

func (b *builder) add(s driver.State) {
	var holders, waiters []int
	if s.Foreign != nil {
		s.Holders = nil
	}
	for _, h := range s.Holders {
		i, ok := b.process(h.Token)
		if !ok {
			continue
		}
		p := &b.Processes[i]
		p.Holds = append(p.Holds, Entry{
			Name: s.Name, Kind: h.Kind, Label: h.Label, Weight: h.Weight, Limit: h.Limit,
			Fence: h.Fence, Remaining: h.Remaining, Reserved: h.Reserved,
		})
		if !h.Reserved {
			holders = append(holders, i)
		}
	}
	for position, w := range s.Waiters {
		i, ok := b.process(w.Token)
		if !ok {
			continue
		}
		p := &b.Processes[i]
		p.Waits = append(p.Waits, Entry{
			Name: s.Name, Kind: w.Kind, Label: w.Label, Weight: w.Weight, Limit: w.Limit,
			Waited: w.Waited, Position: position + 1,
		})
		waiters = append(waiters, i)
	}
	b.connect(s, distinct(holders), distinct(waiters))
}

// maxWaits bounds a graph's size: many readers that delay many writers are a wait for each pair.
const maxWaits = 100_000

// connect adds a wait by each waiter for each holder. A process does not wait for itself.
func (b *builder) connect(s driver.State, holders, waiters []int) {
	if len(holders) > 1 && isPermits(s) {
		if b.permits == nil {
			b.permits = make(map[string]bool)
		}
		b.permits[s.Name] = true
	}
	for _, w := range waiters {
		for _, h := range holders {
			switch {
			case w == h:
			case len(b.Waits) == maxWaits:
				b.Partial = true
				return
			default:
				b.Waits = append(b.Waits, Wait{Waiter: w, Holder: h, Name: s.Name})
			}
		}
	}
}

// isPermits reports whether another release can be enough for a waiter. A waiter that wants all
// permits waits for each holder.
func isPermits(s driver.State) bool {
	return slices.ContainsFunc(s.Waiters, func(w driver.Waiter) bool { return w.Limit != driver.Unlimited && w.Weight < w.Limit })
}

func distinct(indices []int) []int {
	slices.Sort(indices)
	return slices.Compact(indices)
}

// process returns a token's process. It is unknown if dibs did not make the token.
func (b *builder) process(token string) (int, bool) {
	const shown = 4 // characters in the ID
	client, ok := ownertoken.ClientOf(token)
	if !ok {
		return 0, false
	}
	i, known := b.index[client.ID]
	if !known {
		i = len(b.Processes)
		b.index[client.ID] = i
		b.Processes = append(b.Processes, Process{Host: client.Host, PID: client.PID, ID: client.Own[:shown]})
	}
	return i, true
}

// markTwins marks the clients with the same host and process as another client, such as two clients
// in the same process, or in two containers.
func (b *builder) markTwins() {
	type address struct {
		host string
		pid  int
	}
	clients := make(map[address]int)
	for _, p := range b.Processes {
		clients[address{p.Host, p.PID}]++
	}
	for i := range b.Processes {
		p := &b.Processes[i]
		p.twin = clients[address{p.Host, p.PID}] > 1
	}
}

// sorted returns the graph in Graph's order.
func (b *builder) sorted() Graph {
	inCycle := make([]bool, len(b.Processes))
	for _, w := range b.Waits {
		if w.InCycle {
			inCycle[w.Waiter] = true
		}
	}
	for _, p := range b.Processes {
		slices.SortStableFunc(p.Waits, func(x, y Entry) int { return cmp.Compare(y.Waited, x.Waited) })
		slices.SortStableFunc(p.Holds, func(x, y Entry) int { return cmp.Compare(x.Name, y.Name) })
	}
	order := make([]int, len(b.Processes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int {
		if inCycle[x] != inCycle[y] && inCycle[x] {
			return -1
		}
		if inCycle[x] != inCycle[y] {
			return 1
		}
		p, q := b.Processes[x], b.Processes[y]
		return cmp.Or(cmp.Compare(q.longestWait(), p.longestWait()), cmp.Compare(len(q.Holds), len(p.Holds)),
			cmp.Compare(p.Host, q.Host), cmp.Compare(p.PID, q.PID), cmp.Compare(p.ID, q.ID))
	})
	return b.renumbered(order)
}

// renumbered returns the graph with its processes in this order.
func (b *builder) renumbered(order []int) Graph {
	place := make([]int, len(order))
	processes := make([]Process, len(order))
	for to, from := range order {
		place[from], processes[to] = to, b.Processes[from]
	}
	renumber := func(waits []Wait) {
		for i := range waits {
			waits[i].Waiter, waits[i].Holder = place[waits[i].Waiter], place[waits[i].Holder]
		}
	}
	renumber(b.Waits)
	for _, c := range b.Cycles {
		renumber(c.Waits)
	}
	return Graph{Processes: processes, Waits: b.Waits, Cycles: b.Cycles, Partial: b.Partial}
}

func (p Process) longestWait() time.Duration {
	if len(p.Waits) == 0 {
		return -1
	}
	return p.Waits[0].Waited
}
