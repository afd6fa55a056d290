package view

import (
	"strconv"
	"time"
)

// A Row is the state of a name in a list, in the words that top, ls and the dashboard use.
// What is not known, or does not apply, is empty. All texts are safe for a terminal.
type Row struct {
	Name    string
	Kind    string // of a foreign lock: what it looks like
	Holder  string // the first one, and the number of the others
	TTL     string // until the first lease expires
	Held    string // for how long the first holder has held it
	Wait    int    // number of waiters
	Longest string // the longest wait
	Fence   string
}

// Row returns the row of a name.
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
