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
// the names are the keys, as in most other libraries. With any prefix, wait queues use the keys
// {key}:dibs:…, and the fence high-water marks (the largest fences issued) use dibs:fence:…. A
// Redis ACL must also allow these keys.
func Prefix(prefix string) Option {
	return Option{func(s *settings) { s.format.Prefix, s.prefixed = prefix, true }}
}

// HiddenCluster declares that the server's address hides a cluster's nodes, as a cluster proxy's
// address does. A script then uses only keys in the same slot, so names in different slots are
// acquired in separate steps. A client library's own cluster client does not need this option.
func HiddenCluster() Option { return Option{func(s *settings) { s.format.Sharded = true }} }

// SharedKeys declares that other libraries' clients lock the same keys, and poll until a key is
// free.
//
// Without this option, a store detects these clients only when they hold a lock. From then on, it
// sometimes leaves the name free for them. But while dibs' wait queue is never empty, they never
// hold the name, so the store does not detect them. With SharedKeys, the store leaves each name
// with waiters free for 25 ms once a second. After it detects another library's holder, it leaves
// the name free more often.
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

// Groups implements driver.Grouper. A single Acquire acquires a group of names. On a cluster, a
// group contains the names in a slot. Otherwise the only group contains all names; behind a proxy,
// Acquire rejects it if the names' hash tags differ.
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
