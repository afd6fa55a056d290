package view

import (
	"fmt"
	"strings"

	"github.com/dibslock/dibs/internal/waitgraph"
)

// Cycle formats processes that wait for each other, for people. It names the first few.
func Cycle(g waitgraph.Graph, c waitgraph.Cycle) string {
	const most = 4
	var waits []string
	for _, w := range c.Waits[:min(most, len(c.Waits))] {
		waits = append(waits, fmt.Sprintf("%s waits for %s of %s", Safe(g.Processes[w.Waiter].String()), Safe(w.Name), Safe(g.Processes[w.Holder].String())))
	}
	text := strings.Join(waits, ", ")
	if len(c.Waits) > most {
		text += ", …"
	}
	may := ""
	if !c.Sure {
		may = " may"
	}
	return fmt.Sprintf("%d processes%s wait for each other: %s", len(c.Waits), may, text)
}
