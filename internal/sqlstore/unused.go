package sqlstore

import (
	"context"
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
	acquired int    // since the last removal
	after    string // the last name that it looked at
}

// Sweep counts an acquire. After some of them it calls remove on a goroutine of its own. remove looks
// at the next names after one. It returns the last name that it looked at, or "" at the end.
// A failure changes nothing: the next one looks at the same names.
func (u *Unused) Sweep(remove func(ctx context.Context, after string, names int) (last string, err error)) {
	after, ok := u.due()
	if !ok {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*driver.OperationTimeout)
		defer cancel()
		if last, err := remove(ctx, after, lookedAt); err == nil {
			u.looked(last)
		}
	}()
}

func (u *Unused) due() (after string, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.acquired++; u.acquired < acquiredEach {
		return "", false
	}
	u.acquired = 0
	return u.after, true
}

func (u *Unused) looked(last string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.after = last
}
