// Package quorum combines several independent stores into one. A lock is held by the owner with
// votes from a majority of the nodes, so a minority can crash, hang or be partitioned without
// effect.
//
//	store, err := quorum.New([]driver.Voter{a, b, c, d, e})
//	…
//	locks := dibs.New(store)
//
// It is the Redlock algorithm, but independent of Redis. A node is any driver.Voter: redisstore on
// a single server, not a cluster, or memstore. docs/quorum.md lists the assumptions about clocks
// and delays, and the consequences if an assumption is wrong.
//
// Exclusive locks and reader/writer locks are supported. Semaphores are rejected, because
// two majorities can each see room for the last permit.
package quorum

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// A Store is a driver.Store made of several stores, its nodes. It is safe for concurrent use.
type Store struct {
	nodes    nodes
	config   core.Config
	watchers watchers
	runner   runner
}

var (
	_ driver.Store          = (*Store)(nil)
	_ driver.Resizer        = (*Store)(nil)
	_ driver.Revoker        = (*Store)(nil)
	_ driver.WantedNotifier = (*Store)(nil)
	_ driver.Inspector      = (*Store)(nil)
	_ driver.Lister         = (*Store)(nil)
	_ driver.FenceReserver  = (*Store)(nil)
)

// DefaultMaxTTL is the default for MaxTTL.
const DefaultMaxTTL = time.Minute

// An Option configures a Store made by New. The zero value changes nothing.
type Option struct{ apply func(*settings) }

// settings are changed by options.
type settings struct {
	maxTTL  time.Duration
	durable bool
}

// MaxTTL sets the longest lease TTL; the default is DefaultMaxTTL. The value is 10 ms to 24 h;
// otherwise New returns ErrInvalid. A request with a TTL above MaxTTL returns ErrInvalid. A new or
// restarted node may have lost leases, so it grants nothing for MaxTTL: see DurableNodes. All
// clients of the same nodes must use the same value.
func MaxTTL(ttl time.Duration) Option { return Option{func(s *settings) { s.maxTTL = ttl }} }

// DurableNodes declares that nodes never lose data, so a new or restarted node votes at once. If a
// node does lose data, two clients may hold a name at once.
func DurableNodes() Option { return Option{func(s *settings) { s.durable = true }} }

// New returns a store made of these nodes. It does no I/O. The nodes must be independent servers:
// one node, or at least three. Choose an odd number: three and four nodes both tolerate only a
// single failure.
//
// New returns ErrInvalid if a node is nil, appears twice, or cannot vote, like a cluster. It also
// rejects two nodes, because the quorum would fail when either node fails. New cannot detect that
// two nodes are clients of the same server. Acquire returns ErrInvalid after both have voted.
func New(voters []driver.Voter, options ...Option) (*Store, error) {
	set := settings{maxTTL: DefaultMaxTTL}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&set)
		}
	}
	return newStore(voters, set)
}

func newStore(voters []driver.Voter, set settings) (*Store, error) {
	if err := checkNodes(voters, set.maxTTL); err != nil {
		return nil, err
	}
	config := core.Config{Nodes: len(voters), Majority: len(voters)/2 + 1, Longest: set.maxTTL}
	if !set.durable {
		config.RecoveryWindow = set.maxTTL
	}
	s := &Store{nodes: nodes{slices.Clone(voters), config.Majority}, config: config}
	s.runner.init(core.New(config), s.nodes, s.watchers.notify)
	return s, nil
}

// Close ends all calls. It also ends the redelivery: repeated releases and cancels for unreachable
// nodes. It waits at most 50 ms for requests in flight; then it cancels them. If a node did not
// receive a release, the lease on this node ends after its TTL. After Close, all operations return
// driver.ErrUnavailable.
//
// Close does not close the nodes. You should close the store's Clients first, because they release
// their leases. A second Close does nothing. The error is always nil.
func (s *Store) Close() error {
	if len(s.nodes.all) > 0 { // otherwise it is a zero Store
		s.runner.close()
	}
	return nil
}

func checkNodes(nodes []driver.Voter, maxTTL time.Duration) error {
	switch {
	case len(nodes) == 0:
		return fmt.Errorf("%w: a quorum has no nodes; pass one, three or more", driver.ErrInvalid)
	case len(nodes) == 2:
		return fmt.Errorf("%w: a quorum of two nodes fails when either node fails; use one or three", driver.ErrInvalid)
	case maxTTL < driver.MinTTL || maxTTL > driver.MaxTTL:
		return fmt.Errorf("%w: MaxTTL %v of a quorum is out of range; use %v to %v", driver.ErrInvalid, maxTTL, driver.MinTTL, driver.MaxTTL)
	}
	for i, n := range nodes {
		if driver.IsNil(n) {
			return fmt.Errorf("%w: node %d of a quorum is nil", driver.ErrInvalid, i)
		}
		if err := n.CanVote(); err != nil {
			return fmt.Errorf("node %d of a quorum: %w", i, err)
		}
		for j, other := range nodes[:i] {
			if reflect.ValueOf(n).Comparable() && n == other {
				return fmt.Errorf("%w: nodes %d and %d of a quorum are the same store, whose vote would count twice", driver.ErrInvalid, j, i)
			}
		}
	}
	return nil
}
