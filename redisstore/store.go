// Package redisstore stores locks on a Redis: standalone, replicated or a cluster. docs/spec.md
// describes the keys and scripts.
//
// The package imports no client library. It needs only a small redisconn.Conn. You should use an
// adapter to make a Store from your own client: goredisstore, rueidisstore or redigostore.
// docs/redis.md describes set-up, topologies and costs.
package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/redisstore/internal/pipeline"
	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Store is a driver.Store on Redis. It is safe for concurrent use.
type Store struct {
	conn     redisconn.Conn
	format   wire.Format
	requests pipeline.RequestPool
	slots    *pipeline.Slots
	replicas *replication // replicas that must confirm a write, or nil
	mixed    mixedNames
	hasData  atomic.Bool // a lock key's value is too long for a lock: see plain
	readOnly atomic.Bool // the user may only read: see read
}

var (
	_ driver.Voter         = (*Store)(nil) // with most optional interfaces
	_ driver.Grouper       = (*Store)(nil)
	_ driver.Announcer     = (*Store)(nil)
	_ driver.FenceReserver = (*Store)(nil)
)

// An Option configures a Store made by New. The zero value changes nothing.
type Option struct{ apply func(*settings) }

// settings are changed by options.
type settings struct {
	format   wire.Format
	prefixed bool // the user set the prefix
	mixed    bool
	replicas *replication
}

// Prefix sets the text before each name in its key. The default is "lock:". With an empty prefix
// the names are the keys, as in most other libraries. Wait queues use the keys {key}:dibs:…, and
// fence high-water marks use dibs:fence:…, whatever the prefix: an ACL must allow them as well.
func Prefix(prefix string) Option {
	return Option{func(s *settings) { s.format.Prefix, s.prefixed = prefix, true }}
}

// HiddenCluster declares that the address is in front of a cluster, and hides its nodes. Names in
// different slots are then not acquired in a single step. A client library's own cluster client
// does not need this option.
func HiddenCluster() Option { return Option{func(s *settings) { s.format.Sharded = true }} }

// SharedKeys declares that other libraries' clients use the same keys, and poll for them.
//
// Without it, a store detects foreign holders, and then periodically leaves the name free for these
// clients. But while dibs' waiters are always queued, foreign clients never hold the name, so the
// store cannot detect them. With SharedKeys the store leaves each name free for 25 ms once a second
// while waiters are always queued, and more often after it detects a foreign holder.
func SharedKeys() Option { return Option{func(s *settings) { s.mixed = true }} }

// New returns a Store on a connection. It does no I/O. If conn is nil, or a nil pointer, each store
// call returns driver.ErrInvalid.
func New(conn redisconn.Conn, options ...Option) *Store {
	if driver.IsNil(conn) {
		conn = redisconn.Invalid("redisstore.New: the redisconn.Conn is nil")
	}
	s := settings{format: wire.Format{Prefix: "lock:"}}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&s)
		}
	}
	s.completeRedisson()
	traits := conn.Traits()
	s.format.Sharded = s.format.Sharded || traits.Cluster
	if s.format.Proxy {
		conn = proxiedConn{conn}
	}
	return &Store{
		conn: conn, format: s.format, replicas: s.replicas, mixed: mixedNames{always: s.mixed},
		slots: pipeline.New(pipeline.Config{Conn: conn, Sharded: s.format.Sharded, Proxy: s.format.Proxy, Prompt: traits.KeepsUntil}),
	}
}

// Groups implements driver.Grouper. A group is a set of names for a single Acquire: on a cluster,
// the names in a slot; otherwise all names. Behind a proxy Acquire rejects names with different
// hash tags.
func (s *Store) Groups(names []string) [][]string {
	if !s.format.Sharded {
		return [][]string{names}
	}
	bySlot := make(map[int][]string)
	for _, name := range names {
		at := s.format.Route(name).Slot
		bySlot[at] = append(bySlot[at], name)
	}
	groups := make([][]string, 0, len(bySlot))
	for _, at := range slices.Sorted(maps.Keys(bySlot)) {
		groups = append(groups, bySlot[at])
	}
	return groups
}

// do sends a request and returns its reply: see pipeline.Do.
func (s *Store) do(ctx context.Context, r *pipeline.Request, until time.Time) (reply redisconn.Reply, retried bool) {
	reply, retried, reusable := s.slots.Of(r.Route).Do(ctx, r, until)
	if reusable {
		s.requests.Put(r)
	}
	return reply, retried
}

func (s *Store) checkRequest(r driver.AcquireRequest) error {
	if err := driver.CheckAcquire(r); err != nil {
		return err
	}
	if err := s.checkKey(r.Name); err != nil {
		return err
	}
	for _, name := range r.With {
		if err := s.checkKey(name); err != nil {
			return err
		}
	}
	if err := s.checkRedisson(r); err != nil {
		return err
	}
	if err := s.checkTags(r); err != nil {
		return err
	}
	return s.checkToken(r.Name, r.Token)
}

func (s *Store) checkToken(name, token string) error {
	if strings.HasPrefix(token, wire.SharedMark) {
		return fmt.Errorf("%w: %q: token %q begins with the mark of a shared lock", driver.ErrInvalid, name, token)
	}
	if wire.HasFence(token) {
		return fmt.Errorf("%w: %q: token %q begins with a number and a space, as the value of a lock does, which is fence and token", driver.ErrInvalid, name, token)
	}
	return s.checkRedissonToken(name, token)
}

// check validates the store's settings, and a name.
func (s *Store) check(name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	return s.checkKey(name)
}

// checkKey validates the store's settings, and a valid name's key.
func (s *Store) checkKey(name string) error {
	if err := s.replicas.check(); err != nil {
		return err
	}
	if err := s.checkProxy(); err != nil {
		return err
	}
	return s.format.CheckName(name)
}
