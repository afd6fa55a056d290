package pgstore

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// An unusedNames removes the rows of names that nobody has used for a minute, so that the
// table does not grow with the number of names ever used. It is safe for concurrent use.
type unusedNames struct {
	mu       sync.Mutex
	acquired int    // since the last removal
	after    string // the last name that it looked at
}

const (
	acquiredEach = 500  // acquires, after which some names are looked at
	lookedAt     = 2000 // names
)

// due counts an acquire, and returns after which name to look, if it is time.
func (u *unusedNames) due() (after string, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.acquired++; u.acquired < acquiredEach {
		return "", false
	}
	u.acquired = 0
	return u.after, true
}

func (u *unusedNames) looked(last string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.after = last
}

// removeUnused removes unused names, off the path of the caller. A failure changes nothing: the
// next one looks at the same names.
func (s *Store) removeUnused() {
	after, ok := s.unused.due()
	if !ok {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*driver.OperationTimeout)
		defer cancel()
		var last *string
		err := s.transact(ctx, func(q querier) error {
			return q.QueryRow(ctx, s.text.removeUnused, after, lookedAt, time.Minute.Microseconds()).Scan(&last)
		})
		switch {
		case err != nil:
		case last == nil:
			s.unused.looked("")
		default:
			s.unused.looked(*last)
		}
	}()
}
