// Package quorum combines several independent stores into one. A lock is held by the
// owner that has votes from a majority of the nodes, so a minority may crash, hang or be
// partitioned without effect.
//
//	store, err := quorum.New(a, b, c, d, e)
//	…
//	locks := dibs.New(store)
//
// It is the Redlock algorithm, but independent of Redis. A node is any driver.Voter:
// redisstore on a server that is not a cluster, or memstore.
// docs/quorum.md lists the assumptions about clocks and delays, and what breaks if one is
// wrong.
//
// Exclusive locks and reader/writer locks are supported. Semaphores are rejected, because
// two majorities may each see room for the last permit.
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

// A Store is a driver.Store made of several stores, its nodes. It is safe for concurrent
// use.
type Store struct {
	nodes          []*node
	majority       int           // number of votes that are a majority
	recoveryWindow time.Duration // minimum uptime of a node before it votes
	longest        time.Duration // longest TTL of a lease
	clock          clock

	mu           sync.Mutex
	acquisitions map[acquisitionKey]*acquisition // in progress
	byToken      map[string]*acquisition         // the newest of each token
	watchers     map[string][]*watcher           // by client
	renewals     map[*renewal]struct{}           // in progress
}

var _ driver.Store = (*Store)(nil)

// A node is one of the stores.
type node struct {
	driver.Voter

	// The Store's mutex guards these fields:
	undelivered  []*delivery
	redelivering bool
	storeID      string // store ID in the last vote; empty before the first
	duplicateOf  *node  // node with the same store ID when this node first voted
}

// Longest is the default of Config.Longest.
const Longest = time.Minute

// A Config holds the options of a quorum. The zero value is the default.
type Config struct {
	// Longest is the longest TTL of a lease. The default is the constant Longest. A node
	// that is new or was restarted may have lost such a lease, so it does not vote for
	// this long. All clients of the nodes must use the same value.
	Longest time.Duration
	// Trusting lets a new or restarted node vote at once. Use it only for nodes that
	// never lose data.
	Trusting bool
}

// New returns a store made of nodes. It does no I/O. The nodes must be independent
// servers: one, three or more. An odd number is best: a fourth node is one more that may
// fail, but four nodes still tolerate only one failure.
//
// New returns ErrInvalid if a node is nil or appears twice. It also rejects two nodes, because the quorum would fail when either of them does. One server
// behind two clients is detected only when both have voted; then Acquire returns
// ErrInvalid.
func New(nodes ...driver.Voter) (*Store, error) { return Config{}.New(nodes...) }

// New returns a store made of nodes, like the function New, with the options of c.
func (c Config) New(nodes ...driver.Voter) (*Store, error) {
	s := &Store{
		majority: len(nodes)/2 + 1, longest: cmp.Or(c.Longest, Longest),
		acquisitions: make(map[acquisitionKey]*acquisition), byToken: make(map[string]*acquisition),
		watchers: make(map[string][]*watcher), renewals: make(map[*renewal]struct{}),
	}
	if err := checkNodes(nodes, s.longest); err != nil {
		return nil, err
	}
	if !c.Trusting {
		s.recoveryWindow = s.longest
	}
	for _, n := range nodes {
		s.nodes = append(s.nodes, &node{Voter: n})
	}
	return s, nil
}

func checkNodes(nodes []driver.Voter, longest time.Duration) error {
	switch {
	case len(nodes) == 0:
		return fmt.Errorf("%w: quorum has no nodes; pass one, three or more", driver.ErrInvalid)
	case len(nodes) == 2:
		return fmt.Errorf("%w: a quorum of two nodes fails when either node fails; use one or three", driver.ErrInvalid)
	case longest < driver.MinTTL || longest > driver.MaxTTL:
		return fmt.Errorf("%w: longest TTL %v of a quorum is out of range; use %v to %v", driver.ErrInvalid, longest, driver.MinTTL, driver.MaxTTL)
	}
	for i, n := range nodes {
		if isNilStore(n) {
			return fmt.Errorf("%w: node %d of a quorum is nil", driver.ErrInvalid, i)
		}
		for j, other := range nodes[:i] {
			if reflect.ValueOf(n).Comparable() && n == other {
				return fmt.Errorf("%w: nodes %d and %d of a quorum are the same store, whose vote would count twice", driver.ErrInvalid, j, i)
			}
		}
	}
	return nil
}

func isNilStore(n driver.Voter) bool {
	if n == nil {
		return true
	}
	v := reflect.ValueOf(n)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// recordStoreID records which store a node's vote came from. The caller holds s.mu.
func (s *Store) recordStoreID(n *node, id string) {
	if id == "" {
		return
	}
	first := n.storeID == ""
	n.storeID = id
	for _, other := range s.nodes {
		if first && other != n && other.storeID == id {
			n.duplicateOf = other
		}
	}
}

// checkDuplicateNodes returns ErrInvalid while two nodes are one server and were so from
// their first vote: that is a mistake in the configuration. An address that later
// resolves to another node's server is a failure of one node: its vote does not count,
// and the other nodes continue. The caller holds s.mu.
func (s *Store) checkDuplicateNodes() error {
	for i, n := range s.nodes {
		if n.duplicateOf != nil && n.duplicateOf.storeID == n.storeID {
			return fmt.Errorf("%w: nodes %d and %d of the quorum are the same server, whose vote would count twice",
				driver.ErrInvalid, slices.Index(s.nodes, n.duplicateOf), i)
		}
	}
	return nil
}

// operationTimeout bounds an operation without a deadline of its own.
const operationTimeout = time.Second

func deadlineOf(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(operationTimeout)
}

// nodeContext returns a context for one node's part of an operation that ends at until.
// It ends slightly earlier, so that the errors of slow nodes are known by then.
func nodeContext(until time.Time) (context.Context, context.CancelFunc) {
	const least = 5 * time.Millisecond
	return context.WithDeadline(context.Background(), until.Add(-min(time.Until(until)/20, least)))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A clock issues numbers that only grow. A number is the time in µs, and larger than all
// numbers that the clock issued or observed. Tickets and fences are such numbers. So a
// process with a slow clock is not always served first, and does not force the nodes to
// issue a second fence.
type clock struct {
	mu   sync.Mutex
	last uint64
}

func (c *clock) next() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, uint64(time.Now().UnixMicro()))
	return c.last
}

func (c *clock) observe(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, n)
}

// Groups implements driver.Store. Each name is a group of its own, in sorted order.
func (s *Store) Groups(names []string) [][]string {
	groups := make([][]string, len(names))
	for i, name := range sortedNames(names) {
		groups[i] = []string{name}
	}
	return groups
}

// unavailable returns an error that says how many nodes answered, and why the others did
// not.
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
	u.Cause = fmt.Errorf("%d of %d nodes answered, not enough for a majority: %w", len(errs)-len(causes), len(errs), errorList(causes))
	return u
}

// An errorList formats several errors on one line.
type errorList []error

func (r errorList) Error() string {
	var all []string
	for _, err := range r {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

func (r errorList) Unwrap() []error { return r }
