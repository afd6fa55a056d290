package view

import (
	"fmt"
	"strings"

	"github.com/dibslock/dibs/dashboard/waitgraph"
)

// Cycle formats processes that wait for each other, for people. It names the first few.
func Cycle(g waitgraph.Graph, c waitgraph.Cycle) string { return strings.Join(CycleParts(g, c), "") }

// CycleParts returns the parts of Cycle's sentence: words and names in turn, starting with words. A
// program can separate the names, which can be written from right to left.
func CycleParts(g waitgraph.Graph, c waitgraph.Cycle) []string {
	const most = 4
	parts := []string{CycleTitle(c) + ": "}
	for i, w := range c.Waits[:min(most, len(c.Waits))] {
		if i > 0 {
			parts = append(parts, ", ")
		}
		waiter, holder := g.Processes[w.Waiter].String(), g.Processes[w.Holder].String()
		parts = append(parts, Safe(waiter), " waits for ", Safe(w.Name), " of ", Safe(holder))
	}
	if len(c.Waits) > most {
		parts = append(parts, ", …")
	}
	return parts
}

// CycleTitle returns how many processes wait for each other.
func CycleTitle(c waitgraph.Cycle) string {
	may := ""
	if !c.Sure {
		may = " may"
	}
	return fmt.Sprintf("%d processes%s wait for each other", len(c.Waits), may)
}
