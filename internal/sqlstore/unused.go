package sqlstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// UnusedAfter is how long nobody has used a name before its row is removed.
const UnusedAfter = time.Minute

const (
	acquiredEach = 500  // acquires, after which some names are looked at
	lookedAt     = 2000 // names
)

// An Unused removes the rows of names that nobody has used for some time, so that the table does not
// grow with the number of names ever used. It is safe for concurrent use.
type Unused struct {
	mu       sync.Mutex
	acquired int  // since the last removal
	running  bool // a removal, which may take longer than the acquires that start the next one
}

// NewUnused returns an Unused. It counts from a random number, so that processes that acquire only a
// few names remove some, too.
func NewUnused() *Unused { return &Unused{acquired: rand.IntN(acquiredEach)} }

// Sweep counts an acquire. After some of them it calls remove on a goroutine of its own, one at a
// time. remove looks at the next names. The database remembers which are next, so after a failure
// the next one looks at the same names.
func (u *Unused) Sweep(remove func(ctx context.Context, names int) error) {
	if !u.begin() {
		return
	}
	go func() {
		defer u.end()
		ctx, cancel := context.WithTimeout(context.Background(), 5*driver.OperationTimeout)
		defer cancel()
		_ = remove(ctx, lookedAt)
	}()
}

func (u *Unused) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.acquired++; u.acquired < acquiredEach || u.running {
		return false
	}
	u.acquired, u.running = 0, true
	return true
}

func (u *Unused) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running = false
}
