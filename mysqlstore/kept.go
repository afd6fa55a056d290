package mysqlstore

import (
	"context"
	"database/sql"
	"sync"
	"time"
)

// A kept connection belongs to a pool that other work can use up. The store keeps it from the first
// grant until its leases have certainly ended, for renewals and releases. Nobody can open a
// connection beside a *sql.DB, which does not reveal its parameters. It is safe for concurrent use.
type kept struct {
	limit func() int // the pool's: without a limit, or with a single connection, none is kept
	turn  chan struct{}

	mu    sync.Mutex
	conn  *sql.Conn
	until time.Time
	timer *time.Timer
}

// longestKept is how long a connection is kept for a lease with a long TTL.
const longestKept = 10 * time.Minute

func newKept(limit func() int) *kept { return &kept{limit: limit, turn: make(chan struct{}, 1)} }

// need records that there is a lease, or a request for a lease.
func (k *kept) need(ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if until := time.Now().Add(min(ttl, longestKept)); until.After(k.until) {
		k.until = until
	}
}

// put keeps a connection instead of returning it, if a connection is needed.
func (k *kept) put(conn *sql.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := time.Until(k.until)
	if k.conn != nil || left <= 0 || k.limit() < 2 {
		return false
	}
	k.conn = conn
	k.timer = time.AfterFunc(left, k.expire)
	return true
}

// expire gives the connection back when no lease needs it any more.
func (k *kept) expire() {
	k.mu.Lock()
	left := time.Until(k.until)
	if k.conn != nil && left > 0 {
		k.timer = time.AfterFunc(left, k.expire)
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()
	k.drop()
}

// drop gives the connection back, after its request.
func (k *kept) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		return
	}
	k.timer.Stop()
	go func(conn *sql.Conn) { _ = conn.Close() }(k.conn) // it waits for a request
	k.conn = nil
}

// use calls do with the connection, or reports that there is none.
func (k *kept) use(ctx context.Context, do func(*sql.Conn) error) (used bool, err error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return false, nil
	}
	k.mu.Lock()
	conn := k.conn
	k.mu.Unlock()
	if conn == nil {
		return false, nil
	}
	if err = do(conn); err != nil && numberOf(err) == 0 { // it may be broken
		k.drop()
	}
	return true, err
}
