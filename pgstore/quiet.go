package pgstore

import (
	"database/sql"
	"errors"
	"hash/maphash"
	"sync/atomic"
)

// quietNames contains names without waiters when this process last acquired them. For these, a
// plain statement is likely to be enough, which costs the server less than a function. A wrong
// guess costs a round trip. It is safe for concurrent use. Its size is fixed: a name can replace
// another.
type quietNames struct {
	seed  maphash.Seed
	slots [16384]atomic.Uint32 // hashes
}

func newQuietNames() *quietNames { return &quietNames{seed: maphash.MakeSeed()} }

func (q *quietNames) find(name string) (slot *atomic.Uint32, hash uint32) {
	h := maphash.String(q.seed, name)
	return &q.slots[h%uint64(len(q.slots))], uint32(h>>32) | 1 // 0 is an empty slot
}

func (q *quietNames) has(name string) bool {
	slot, hash := q.find(name)
	return slot.Load() == hash
}

func (q *quietNames) add(name string) {
	slot, hash := q.find(name)
	slot.Store(hash)
}

func (q *quietNames) remove(name string) {
	slot, hash := q.find(name)
	slot.CompareAndSwap(hash, 0)
}

// notQuiet reports whether a plain statement changed nothing because the name was not quiet: it
// found no row, or a transaction guards the lease.
func notQuiet(err error) bool { return errors.Is(err, sql.ErrNoRows) || isCode(err, codeGuarded) }
