// Package core decides which message goes to which node, which replies form a majority, and which
// messages to repeat later. It is a state machine without goroutines, mutexes, I/O or clocks. Each
// step receives the time and returns its effects, which package quorum carries out.
package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Config describes a quorum.
type Config struct {
	Nodes          int
	Majority       int           // number of votes for a majority
	Longest        time.Duration // longest lease TTL
	RecoveryWindow time.Duration // minimum uptime before a node can vote; zero: none
}

// A Machine is a client's view of a quorum. It is not safe for concurrent use. The times passed to
// its steps must never go back.
type Machine struct {
	Config
	nodes        []node
	clock        clock
	acquisitions map[acquisitionKey]*acquisition // in progress
	byToken      map[string]*acquisition         // the newest acquisition for each token
	renewals     map[*renewal]struct{}           // in progress
	alarms       alarms
	effects      Effects
}

// Effects are the results of a step, each kind in order.
type Effects struct {
	Send   []*Message // to send now; each message needs one Machine.Answer
	Ended  []*Call    // calls whose result is known
	Notify []Notification
}

// A Notification is an event for a client.
type Notification struct {
	Client string
	Event  driver.Event
}

// A node is the known state of a store.
type node struct {
	redelivery
	storeID     string // store ID in the last vote; empty before the first
	duplicateOf int    // 1 + the node with the same store ID when this node first voted
}

// New returns the state machine for a new client.
func New(c Config) *Machine {
	m := &Machine{
		Config: c, nodes: make([]node, c.Nodes),
		acquisitions: make(map[acquisitionKey]*acquisition), byToken: make(map[string]*acquisition), renewals: make(map[*renewal]struct{}),
	}
	for i := range m.nodes {
		m.nodes[i].alarm.owner = &m.nodes[i].redelivery
	}
	return m
}

// flush ends a step and returns its effects.
func (m *Machine) flush() Effects {
	e := m.effects
	m.effects = Effects{}
	return e
}

// NextWake returns when Wake is due, and zero if it is not.
func (m *Machine) NextWake() time.Time { return m.alarms.next() }

// Wake handles the passage of time: it runs due alarms.
func (m *Machine) Wake(now time.Time) Effects {
	for {
		a := m.alarms.due(now)
		if a == nil {
			return m.flush()
		}
		a.owner.wake(m, now)
	}
}

// recordStoreID records which store a node's vote came from.
func (m *Machine) recordStoreID(n int, id string) {
	if id == "" {
		return
	}
	first := m.nodes[n].storeID == ""
	m.nodes[n].storeID = id
	for i := range m.nodes {
		if first && i != n && m.nodes[i].storeID == id {
			m.nodes[n].duplicateOf = i + 1
		}
	}
}

// checkDuplicateNodes returns ErrInvalid if two nodes have been the same server since their first
// vote, which is a configuration mistake. If an address later resolves to another node's server, a
// single node failed: its vote does not count, and the other nodes continue.
func (m *Machine) checkDuplicateNodes() error {
	for i, n := range m.nodes {
		if n.duplicateOf > 0 && m.nodes[n.duplicateOf-1].storeID == n.storeID {
			return fmt.Errorf("%w: nodes %d and %d of the quorum are the same server, whose vote would count twice",
				driver.ErrInvalid, n.duplicateOf-1, i)
		}
	}
	return nil
}

// A clock issues increasing numbers for tickets and fences: the time in µs, but always larger than
// each number issued or observed before. So a process with a slow clock is not always served first,
// and does not force the nodes to issue a second fence.
type clock struct{ last uint64 }

func (c *clock) next(now time.Time) uint64 {
	c.last = max(c.last+1, uint64(now.UnixMicro()))
	return c.last
}

// Observe makes sure that later numbers exceed this fence.
func (m *Machine) Observe(fence uint64) { m.clock.observe(fence) }

func (c *clock) observe(n uint64) { c.last = max(c.last, n) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pop removes a list's first element.
func pop[T any](list *[]T) T {
	first := (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return first
}
