package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

const (
	unusedAfter = time.Minute // a row is removed if nobody used its name for this time
	countedEach = 5000        // see RemoveUnused
	inspected   = 2000        // names
)

// An unused counts acquires, so the table does not grow with the number of names ever used. It
// begins at a random number: even processes that acquire only a few names remove some.
type unused struct {
	mu      sync.Mutex
	counted int  // since the last removal
	running bool // a removal, which can take longer than the acquires that start the next removal
}

// RemoveUnused counts an acquire; an acquire of an existing name counts a tenth. After 500 acquires
// it removes, in the background, names unused for some time. The database remembers which names are
// next, so after a failure the next removal inspects the same names.
func (d *Database) RemoveUnused(existed bool) {
	if !d.unused.begin(existed) {
		return
	}
	go func() {
		defer d.unused.end()
		ctx, cancel := context.WithTimeout(context.Background(), 5*driver.OperationTimeout)
		defer cancel()
		var more bool
		_ = d.One(ctx, false, d.SQL.RemoveUnused, []any{inspected, unusedAfter.Microseconds()}, &more)
	}()
}

func (u *unused) begin(existed bool) bool {
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

func (u *unused) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running = false
}
