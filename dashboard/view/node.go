package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Node is a name's state on a quorum node.
type Node struct {
	Node    int      `json:"node"`            // the first node is 0
	State   string   `json:"state,omitempty"` // as in State; absent if there is an error
	Foreign *Foreign `json:"foreign,omitempty"`
	Holders []Holder `json:"holders"`
	Waiting int      `json:"waiting"`
	Differs bool     `json:"differs,omitempty"` // the holders differ from the quorum's
	Error   string   `json:"error,omitempty"`   // why the state is not known
}

// nodesOf returns a state's nodes, with whole tokens.
func nodesOf(s driver.State, now time.Time) (nodes []Node) {
	for i, on := range s.Nodes {
		if on.Err != nil {
			nodes = append(nodes, Node{Node: i, Holders: []Holder{}, Error: ErrorText(on.Err)})
			continue
		}
		one := StateWithTokens(on.State, now)
		nodes = append(nodes, Node{
			Node: i, State: one.State, Foreign: one.Foreign, Holders: one.Holders, Waiting: one.Waiting, Differs: !sameHolders(s, on.State),
		})
	}
	return nodes
}

// sameHolders reports whether two states have the same holders in the same modes. If there are more
// holders than a state lists, it compares nothing.
func sameHolders(a, b driver.State) bool {
	if a.Holding > len(a.Holders) || b.Holding > len(b.Holders) {
		return true
	}
	type mode struct {
		token    string
		reserved bool
		weight   int
	}
	modes := func(s driver.State) map[mode]bool {
		all := make(map[mode]bool)
		for _, h := range s.Holders {
			all[mode{h.Token, h.Reserved, h.Weight}] = true
		}
		return all
	}
	return maps.Equal(modes(a), modes(b))
}

// shortened returns the node with its tokens' public parts.
func (n Node) shortened() Node {
	n.Holders = slices.Clone(n.Holders)
	for i, h := range n.Holders {
		n.Holders[i] = h.Shortened()
	}
	return n
}

// nodesText contains a line for each node that does not answer or differs.
func (n State) nodesText() string {
	var b strings.Builder
	for _, node := range n.Nodes {
		switch {
		case node.Error != "":
			fmt.Fprintf(&b, "node %d does not answer: %s\n", node.Node, Safe(node.Error))
		case node.Differs:
			fmt.Fprintf(&b, "node %d differs: %s\n", node.Node, node.description())
		}
	}
	return b.String()
}

func (n Node) description() string {
	switch {
	case n.Foreign != nil:
		return "its key holds " + Safe(n.Foreign.Kind)
	case n.State != Held:
		return strings.ReplaceAll(n.State, "_", " ")
	}
	var holders []string
	for _, h := range n.Holders {
		holders = append(holders, h.String()+" as "+KindWord(h.Kind))
	}
	return "held by " + strings.Join(holders, ", ")
}
