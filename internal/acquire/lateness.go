package acquire

import (
	"sync/atomic"
	"time"
)

// A lateness records whether grants have reached a client late. A client whose link was bad a
// short time ago may miss the next grant, too, and the lock would be idle meanwhile. So it requests
// the lock when it is its turn: see driver.AcquireRequest.Late. The zero lateness is ready
// for use. It is safe for concurrent use.
type lateness struct{ until atomic.Int64 } // on the client's clock

const (
	lateAge = 500 * time.Millisecond // an older grant counts as late when it arrives
	lateFor = time.Minute            // how long the client counts as late after that
)

// begin records that a grant came late now, or was lost.
func (l *lateness) begin(now time.Duration) { l.until.Store(int64(now + lateFor)) }

func (l *lateness) isLate(now time.Duration) bool { return int64(now) < l.until.Load() }
