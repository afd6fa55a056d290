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

// Clock sets the store's clock; the default is time.Now. Tests can use it to let the clock drift or
// jump. If now is nil, each store call returns ErrInvalid.
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

// Guard returns ErrLost if any lease in ctx is no longer held at this moment. If ctx contains no
// lease from this store, it returns ErrInvalid. ctx comes from Do or Lease.Context.
//
// It takes the place of a database's Guard in a unit test. The database's Guard also keeps others
// out until its transaction ends; here there is no transaction.
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
