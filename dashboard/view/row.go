package view

import (
	"strconv"
	"time"
)

// A Row is a name's state in a list, in the words used by top, ls and the dashboard. Unknown
// values, or values that do not apply, are empty. All texts are safe for a terminal.
type Row struct {
	Name    string
	Kind    string // for a foreign lock: its likely origin
	Holder  string // the first holder, and the number of others
	TTL     string // until the first lease expires
	Held    string // for how long the first holder has held it
	Wait    int    // number of waiters
	Longest string // the longest wait
	Fence   string
}

// Row returns a name's row.
func (n State) Row(now time.Time) Row {
	r := Row{Name: Safe(n.Name), Kind: n.kindText(), Holder: n.holderSummary(), TTL: n.ttl(), Held: n.ago(now), Wait: n.Waiting}
	if n.Waiting > 0 {
		r.Longest = Brief(n.longestWait())
	}
	if n.Fence != 0 {
		r.Fence = strconv.FormatUint(n.Fence, 10)
	}
	return r
}
