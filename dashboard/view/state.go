// Package view formats the command's output about locks: for people as text, and for programs as
// JSON, whose fields docs/cli-json.md describes.
//
// Its functions are pure: they get states, the time and the terminal's width. Durations in JSON are
// in whole milliseconds, and times in RFC 3339. Tokens are shortened to host and process, unless a
// name says otherwise: whoever has a whole token can release the lock.
package view

import (
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A State is a name's state, as ls and show print it.
type State struct {
	Schema  int      `json:"schema"`
	Name    string   `json:"name"`
	State   string   `json:"state"`           // Held, Free, WrongType, Unreadable
	Error   string   `json:"error,omitempty"` // for an unreadable name
	Kind    string   `json:"kind,omitempty"`  // for a held name: a driver.Kind's, KindShared or KindForeign
	Limit   int      `json:"limit,omitempty"` // a semaphore's permits
	Foreign *Foreign `json:"foreign,omitempty"`
	Holders []Holder `json:"holders"`
	Holding int      `json:"holding"`
	Waiters []Waiter `json:"waiters"`
	Waiting int      `json:"waiting"`
	Fence   uint64   `json:"fence,omitempty"` // for an exclusive holder
	Nodes   []Node   `json:"nodes,omitempty"` // for a quorum

	wholeTokens bool // tokens are
}

// The values of State.State.
const (
	Held      = "held"
	Free      = "free"       // a name between two holders is free and has waiters
	WrongType = "wrong_type" // the key holds a value other than a lock
	// Unreadable is a name that the store's user may not read.
	Unreadable = "unreadable"
)

// StateOf returns a state with its tokens' public parts.
func StateOf(s driver.State, now time.Time) State {
	n := StateWithTokens(s, now)
	n.wholeTokens = false
	for i, h := range n.Holders {
		n.Holders[i] = h.Shortened()
	}
	for i, w := range n.Waiters {
		n.Waiters[i] = w.Shortened()
	}
	for i, node := range n.Nodes {
		n.Nodes[i] = node.shortened()
	}
	return n
}

// StateWithTokens returns a state with whole tokens.
func StateWithTokens(s driver.State, now time.Time) State {
	n := State{
		Schema: Schema, Name: s.Name, State: Free, Foreign: foreignOf(s.Foreign), Nodes: nodesOf(s, now), wholeTokens: true,
		Holders: make([]Holder, 0, len(s.Holders)), Holding: s.Holding,
		Waiters: make([]Waiter, 0, len(s.Waiters)), Waiting: s.Waiting,
	}
	if isData(s.Foreign) {
		s.Holders, n.State, n.Holding = nil, WrongType, 0
	}
	if s.Err != nil {
		n.State, n.Error = Unreadable, reasonOf(s.Err)
	}
	n.setKind(s.Holders)
	for _, h := range s.Holders {
		n.State = Held
		n.Holders = append(n.Holders, holderOf(h, now))
	}
	if len(s.Holders) > 0 && s.Holders[0].Exclusive() {
		n.Fence = s.Holders[0].Fence
	}
	if n.Kind != "" && n.Foreign != nil {
		n.Kind, n.Limit = KindForeign, 0
		for i := range n.Holders {
			n.Holders[i].Kind = ""
		}
	}
	for i, w := range s.Waiters {
		n.Waiters = append(n.Waiters, waiterOf(w, i+1))
	}
	return n
}

// StatesOf returns StateOf for each state.
func StatesOf(states []driver.State, now time.Time) []State {
	out := make([]State, len(states))
	for i, s := range states {
		out[i] = StateOf(s, now)
	}
	return out
}

// reasonOf returns why a name cannot be read. It does not repeat that dibs inspected the name.
func reasonOf(err error) string {
	var unavailable *driver.UnavailableError
	if errors.As(err, &unavailable) && unavailable.Cause != nil {
		err = unavailable.Cause
	}
	return ErrorText(err)
}

// ago formats the time since the first holder acquired the name.
func (n State) ago(now time.Time) string {
	if len(n.Holders) == 0 {
		return ""
	}
	return n.Holders[0].Ago(now)
}

// holderSummary returns the first holder and the number of others.
func (n State) holderSummary() string {
	switch {
	case n.State == Unreadable:
		return Unreadable + ": " + Safe(n.Error)
	case len(n.Holders) == 0:
		return ""
	case n.Holding == 1:
		return n.Holders[0].String()
	}
	return fmt.Sprintf("%s and %d more", n.Holders[0], n.Holding-1)
}

// left returns the time until the first lease expires, or -1 if none expires.
func (n State) left() time.Duration {
	if len(n.Holders) == 0 {
		return 0
	}
	first := n.Holders[0].Left()
	for _, h := range n.Holders {
		if d := h.Left(); d >= 0 && (first < 0 || d < first) {
			first = d
		}
	}
	return first
}

// ttl formats left for people. It is empty for a name that nobody holds.
func (n State) ttl() string {
	switch {
	case len(n.Holders) > 0:
		return Brief(n.left())
	case n.Foreign != nil:
		return Brief(n.Foreign.Left())
	}
	return ""
}

// longestWait returns the longest wait among the listed waiters.
func (n State) longestWait() (d time.Duration) {
	for _, w := range n.Waiters {
		d = max(d, w.waited())
	}
	return d
}
