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
	countedEach = 5000 // see Sweep
	lookedAt    = 2000 // names
)

// An Unused removes the rows of names that nobody has used for some time, so that the table does not
// grow with the number of names ever used. It is safe for concurrent use.
type Unused struct {
	mu      sync.Mutex
	counted int  // since the last removal
	running bool // a removal, which may take longer than the acquires that start the next one
}

// NewUnused returns an Unused. It counts from a random number, so that processes that acquire only a
// few names remove some, too.
func NewUnused() *Unused { return &Unused{counted: rand.IntN(countedEach)} }

// Sweep counts an acquire; one of a name that certainly existed counts a tenth. After 500 of them
// it calls remove on a goroutine of its own, one at a time. remove looks at the next names. The
// database remembers which are next, so after a failure the next one looks at the same names.
func (u *Unused) Sweep(existed bool, remove func(ctx context.Context, names int) error) {
	if !u.begin(existed) {
		return
	}
	go func() {
		defer u.end()
		ctx, cancel := context.WithTimeout(context.Background(), 5*driver.OperationTimeout)
		defer cancel()
		_ = remove(ctx, lookedAt)
	}()
}

func (u *Unused) begin(existed bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if existed {
		u.counted++
	} else {
		u.counted += 10
	}
	if u.counted < countedEach || u.running {
		return false
	}
	u.counted, u.running = 0, true
	return true
}

func (u *Unused) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running = false
}
