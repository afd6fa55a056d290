package waitgraph

import (
	"fmt"
	"slices"
	"strings"
)

// Suspects decides which cycles are shown. Processes that share permits often seem to wait for each
// other for a moment, so an unsure cycle is shown only if it persists. The zero value has seen no
// graph.
type Suspects struct {
	seen map[string]int // number of consecutive graphs with the cycle
}

// persists is the number of consecutive graphs with a cycle before it is shown.
const persists = 3

// Shown returns the cycles in the next graph that should be shown.
func (s *Suspects) Shown(g Graph) (cycles []Cycle) {
	seen := make(map[string]int)
	for _, c := range g.Cycles {
		key := g.keyOf(c)
		seen[key] = min(s.seen[key]+1, persists)
		if c.Sure || seen[key] == persists {
			cycles = append(cycles, c)
		}
	}
	s.seen = seen
	return cycles
}

// keyOf returns the same text for the same cycle in another graph.
func (g Graph) keyOf(c Cycle) string {
	waits := make([]string, len(c.Waits))
	for i, w := range c.Waits {
		p, q := g.Processes[w.Waiter], g.Processes[w.Holder]
		waits[i] = fmt.Sprintf("%q %d %s %q %q %d %s", p.Host, p.PID, p.ID, w.Name, q.Host, q.PID, q.ID)
	}
	slices.Sort(waits)
	return strings.Join(waits, "\n")
}
