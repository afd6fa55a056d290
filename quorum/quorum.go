// Package quorum makes one store of several independent ones: who has the votes of most
// of them holds, so that a minority may die, hang, or be cut off, and nobody notices.
//
//	store, err := quorum.New(a, b, c, d, e)
//	…
//	locks := dibs.New(store)
//
// It is the Redlock algorithm, and names no Redis: its nodes are any stores that know
// ballots, such as redisstore, on a server that is no cluster, and memstore.
// docs/quorum.md says what is assumed of clocks and delays, and what breaks if that is
// wrong.
//
// All works on it that holds a name alone, or reads it beside a writer. It refuses what
// most of the nodes cannot decide: permits of a semaphore, because two majorities may
// each see room for the last one.
package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Store is a dibs.Store made of others, its nodes. It is safe for concurrent use.
type Store struct {
	nodes   []*node
	need    int           // so many votes are most
	memory  time.Duration // that a node must have, to vote
	longest time.Duration // TTL
	clock   clock

	mu       sync.Mutex
	claims   map[claimKey]*acquisition // that are under way
	latest   map[string]*acquisition   // by token
	watchers map[string][]*watcher     // by client
	renewals map[*renewal]struct{}     // that are under way
}

var _ driver.Store = (*Store)(nil)

// A node is one of the stores.
type node struct {
	driver.Store

	// Guarded by the Store's mutex:
	debts  []*delivery
	paying bool
	id     string // which store its last vote came from, empty before the first
	twin   *node  // that was the same store when this one first voted
}

// Longest is the longest TTL of a lease, unless it is set.
const Longest = time.Minute

// A Config is how a quorum differs from the usual.
type Config struct {
	// Longest is the longest TTL of a lease, the default is the constant Longest. A node
	// that was restarted, or is new, does not vote for so long: it may have forgotten
	// such a lease. All clients of the nodes must have the same.
	Longest time.Duration
	// Trusting lets such a node vote at once. It is for nodes that forget nothing.
	Trusting bool
}

// New returns a store made of nodes. It does no I/O. The nodes must be independent
// servers: one, three or more. An odd number is best: the fourth of four nodes is one more
// that may fail, and makes two failures no more bearable.
//
// It returns ErrInvalid if a node is nil, appears twice, or is a quorum itself, and if there
// are two nodes, which fail when either does. One server behind two clients is seen when
// both have voted: then Acquire returns ErrInvalid.
func New(nodes ...driver.Store) (*Store, error) { return Config{}.New(nodes...) }

// New returns a store made of nodes, as the package's New does.
func (c Config) New(nodes ...driver.Store) (*Store, error) {
	s := &Store{
		need: len(nodes)/2 + 1, longest: cmp.Or(c.Longest, Longest),
		claims: make(map[claimKey]*acquisition), latest: make(map[string]*acquisition),
		watchers: make(map[string][]*watcher), renewals: make(map[*renewal]struct{}),
	}
	if err := check(nodes, s.longest); err != nil {
		return nil, err
	}
	if !c.Trusting {
		s.memory = s.longest
	}
	for _, n := range nodes {
		s.nodes = append(s.nodes, &node{Store: n})
	}
	return s, nil
}

func check(nodes []driver.Store, longest time.Duration) error {
	switch {
	case len(nodes) == 0:
		return fmt.Errorf("%w: a quorum without nodes", driver.ErrInvalid)
	case len(nodes) == 2:
		return fmt.Errorf("%w: a quorum of two nodes fails when either does: use one, or three", driver.ErrInvalid)
	case longest < driver.MinTTL || longest > driver.MaxTTL:
		return fmt.Errorf("%w: longest TTL %v of a quorum: %v to %v", driver.ErrInvalid, longest, driver.MinTTL, driver.MaxTTL)
	}
	for i, n := range nodes {
		if isNil(n) {
			return fmt.Errorf("%w: node %d of a quorum is nil", driver.ErrInvalid, i)
		}
		if _, is := n.(*Store); is {
			return fmt.Errorf("%w: node %d of a quorum is a quorum", driver.ErrInvalid, i)
		}
		for j, other := range nodes[:i] {
			if reflect.ValueOf(n).Comparable() && n == other {
				return fmt.Errorf("%w: nodes %d and %d of a quorum are the same store: its vote would count twice", driver.ErrInvalid, j, i)
			}
		}
	}
	return nil
}

func isNil(n driver.Store) bool {
	if n == nil {
		return true
	}
	v := reflect.ValueOf(n)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// identify notes which store a node's vote came from. The caller holds s.mu.
func (s *Store) identify(n *node, id string) {
	if id == "" {
		return
	}
	first := n.id == ""
	n.id = id
	for _, other := range s.nodes {
		if first && other != n && other.id == id {
			n.twin = other
		}
	}
}

// twins returns ErrInvalid while two nodes are one server, as they were from the first: a
// mistake in the configuration. A name that comes to lead to another node's server later
// is a failure of one node: its vote does not count, and the others go on. The caller
// holds s.mu.
func (s *Store) checkDuplicateNodes() error {
	for i, n := range s.nodes {
		if n.twin != nil && n.twin.id == n.id {
			return fmt.Errorf("%w: nodes %d and %d of the quorum are the same server: its vote would count twice",
				driver.ErrInvalid, slices.Index(s.nodes, n.twin), i)
		}
	}
	return nil
}

// operation bounds what has no deadline of its own.
const operation = time.Second

func deadline(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(operation)
}

// within returns a context for one node's part of what has to be done by some time. It
// ends a little earlier, so that why nodes have not answered is known by then.
func within(until time.Time) (context.Context, context.CancelFunc) {
	const least = 5 * time.Millisecond
	return context.WithDeadline(context.Background(), until.Add(-min(time.Until(until)/20, least)))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A clock makes numbers that only grow: by the time in µs, and beyond those that were
// seen. Tickets and fences are such numbers, so that a process whose clock is late is
// neither served first for ever nor makes others write its fences twice.
type clock struct {
	mu   sync.Mutex
	last uint64
}

func (c *clock) tick() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, uint64(time.Now().UnixMicro()))
	return c.last
}

func (c *clock) saw(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, n)
}

// Groups implements dibs.Store: names are taken one after another, in order.
func (s *Store) Groups(names []string) [][]string {
	groups := make([][]string, len(names))
	for i, name := range sorted(names) {
		groups[i] = []string{name}
	}
	return groups
}

// unavailable tells that too few nodes have answered, and why.
func (s *Store) unavailable(op, name string, errs []error) error {
	u := &driver.UnavailableError{Op: op, Name: name, Refused: true}
	var causes []error
	for i, err := range errs {
		switch {
		case err == nil:
			u.Refused = false
			continue
		case errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrWrongType):
			return err
		}
		var of *driver.UnavailableError
		if errors.As(err, &of) {
			u.Refused = u.Refused && of.Refused
			err = of.Cause
		} else {
			u.Refused = false
		}
		causes = append(causes, fmt.Errorf("node %d: %w", i, err))
	}
	u.Cause = fmt.Errorf("%d of %d nodes are not enough: %w", len(errs)-len(causes), len(errs), reasons(causes))
	return u
}

// reasons are several errors, told in one line.
type reasons []error

func (r reasons) Error() string {
	var all []string
	for _, err := range r {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (r reasons) Unwrap() []error { return r }
