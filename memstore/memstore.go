// Package memstore is a store in memory: for tests, where it is exact and instant inside a
// testing/synctest bubble, for examples, and for programs with a single process. Its locks are not
// visible outside the process.
package memstore

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/guard"
	"github.com/dibslock/dibs/internal/locktable"
	"github.com/dibslock/dibs/kvstore"
)

// A Store is a driver.Store in memory. It has no goroutine and no timer: the next operation on a
// name removes expired entries. It is safe for concurrent use.
type Store struct {
	verbs
	memory *memory
}

// verbs are driver.Store's methods.
type verbs = kvstore.Store

var _ driver.Voter = (*Store)(nil)

// An Option configures a Store made by New. The zero value changes nothing.
type Option struct{ apply func(*config) }

// A config contains the values that options change.
type config struct{ clock func() time.Time }

// Clock sets the store's clock; the default is time.Now. With another clock, tests can simulate
// drift and jumps. If now is nil, each store call returns ErrInvalid.
func Clock(now func() time.Time) Option { return Option{func(c *config) { c.clock = now }} }

// New returns an empty store.
func New(options ...Option) *Store {
	c := config{clock: time.Now}
	for _, o := range options {
		if o.apply != nil {
			o.apply(&c)
		}
	}
	if c.clock == nil {
		return &Store{verbs: *kvstore.Over(noClock{})}
	}
	m := &memory{clock: c.clock, epoch: time.Now(), table: locktable.New(), watchers: make(map[string][]*watcher)}
	m.table.Node = rand.Text()
	return &Store{verbs: *kvstore.Over(m), memory: m}
}

// CanVote implements driver.Voter.
func (s *Store) CanVote() error { return nil }

// LoseData makes the store lose all data, like a server that restarts without persistence.
// Watch calls continue.
func (s *Store) LoseData() {
	if s.memory != nil { // not of a zero Store
		s.memory.loseData()
	}
}

// Guard returns nil if all leases in ctx are still held at this moment, and ErrLost otherwise. If
// ctx contains no lease from this store, Guard returns ErrInvalid. ctx comes from Do or
// Lease.Context.
//
// In a unit test, this Guard can replace the Guard of a database store such as pgstore. The
// database's Guard also keeps other owners out until the transaction ends. This Guard has no
// transaction, so another owner can be granted the names right after the call.
func (s *Store) Guard(ctx context.Context) error {
	leases, err := guard.In(ctx, s)
	if err != nil {
		return err
	}
	s.memory.run(func(t *locktable.Table, now locktable.Now) []locktable.Notification {
		for _, h := range leases {
			for i, name := range h.Names {
				if err == nil && !t.Holds(name, h.Token, h.Fences[i], now) {
					err = guard.NotHeld(name)
				}
			}
		}
		return nil
	})
	return err
}
