package sqldrill

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// A Queue is a name's wait queue in a database, which a test inspects without the store.
type Queue struct {
	Store   driver.Store
	DB      *sql.DB
	Tables  string // the prefix of the table names
	Now     string // an expression for the time, in µs
	Blocked string // counts the store's requests waiting for a transaction
}

func (q Queue) table(name string) string { return q.Tables + name }

// acquire acquires "n", or waits for it.
func (q Queue) acquire(t *testing.T, token string, ticket uint64) driver.AcquireReply {
	t.Helper()
	reply, err := q.Store.Acquire(t.Context(), q.request(token, ticket))
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func (q Queue) request(token string, ticket uint64) driver.AcquireRequest {
	return driver.AcquireRequest{
		Name: "n", Token: token, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true, Ticket: ticket, Until: time.Now().Add(generous),
	}
}

func (q Queue) release(t *testing.T, token string) {
	t.Helper()
	r := driver.ReleaseRequest{Name: "n", Token: token, Until: time.Now().Add(generous)}
	if held, err := q.Store.Release(t.Context(), r); err != nil || !held {
		t.Errorf("release: %v, %v", held, err)
	}
}

// begin begins a transaction with some statements.
func (q Queue) begin(t *testing.T, texts ...string) *sql.Tx {
	t.Helper()
	tx, err := q.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, text := range texts {
		if _, err := tx.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return tx
}

// awaitBlocked waits until a request by the store waits for a transaction.
func (q Queue) awaitBlocked(t *testing.T) {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	for blocked := 0; blocked == 0; pause(limit, 150*time.Millisecond) { // MariaDB returns an old state to more frequent queries
		if err := q.DB.QueryRowContext(limit, q.Blocked).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
}

// HeartbeatsLockNothing checks waiters' heartbeats while another transaction locks the name.
func (q Queue) HeartbeatsLockNothing(t *testing.T) {
	t.Helper()
	first := q.acquire(t, "first", 0)
	var waits []driver.AcquireReply
	for i := range 120 {
		waits = append(waits, q.acquire(t, fmt.Sprint("waiter", i), 0))
	}
	q.begin(t, "UPDATE "+q.table("names")+" SET weight = weight WHERE name = 'n'")
	for _, i := range []int{0, 1, 50, 99, 119} {
		reply := q.acquire(t, fmt.Sprint("waiter", i), waits[i].Ticket)
		if want := min(i+1, 101); reply.Held || reply.Ticket != waits[i].Ticket || reply.Position != want || reply.Name != "n" ||
			reply.Holder != "first" || reply.Fence != first.Fence || reply.Remaining <= 0 {
			t.Errorf("waiter %d: %+v, want position %d and ticket %d", i, reply, want, waits[i].Ticket)
		}
	}
}

// HeartbeatDoesNotRevive sends a heartbeat while another transaction ends the wait. The waiter must join
// again, with another ticket.
func (q Queue) HeartbeatDoesNotRevive(t *testing.T) {
	t.Helper()
	q.acquire(t, "first", 0)
	before := q.acquire(t, "waiter", 0)
	tx := q.begin(t, "UPDATE "+q.table("names")+" SET waiting = 0 WHERE name = 'n'", "DELETE FROM "+q.table("waiters")+" WHERE name = 'n'")
	var reply driver.AcquireReply
	done := make(chan error, 1)
	go func() {
		var err error
		reply, err = q.Store.Acquire(t.Context(), q.request("waiter", before.Ticket))
		done <- err
	}()
	q.awaitBlocked(t)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || reply.Held || reply.Ticket <= before.Ticket || reply.Position != 1 {
		t.Errorf("%+v, %v, want a ticket after %d", reply, err, before.Ticket)
	}
	if state, err := driver.Complete(q.Store).Inspect(t.Context(), "n"); err != nil || state.Waiting != 1 {
		t.Errorf("%+v, %v, want one waiter", state, err)
	}
}

// HeartbeatKeepsAnEntry sends a heartbeat for a seemingly dead waiter while a release is about to
// remove its queue entry. The waiter is served.
func (q Queue) HeartbeatKeepsAnEntry(t *testing.T) {
	t.Helper()
	q.acquire(t, "first", 0)
	q.acquire(t, "waiter", 0)
	waiters := q.table("waiters")
	mustExec(t, q.DB, fmt.Sprintf("UPDATE %s SET heartbeat = %s - 20000000, missed = %[2]s - 15000000 WHERE name = 'n'", waiters, q.Now))
	tx := q.begin(t, fmt.Sprintf("UPDATE %s SET heartbeat = %s, missed = 0 WHERE name = 'n'", waiters, q.Now))
	q.handOff(t, tx)
}

// HandoffBeginsWithItsEntry hands a lock over while the queue entry is locked, as a heartbeat does. The
// lease must not begin before: the client counts it from the heartbeat.
func (q Queue) HandoffBeginsWithItsEntry(t *testing.T) {
	t.Helper()
	q.acquire(t, "first", 0)
	q.acquire(t, "waiter", 0)
	tx := q.begin(t, "UPDATE "+q.table("waiters")+" SET ttl = ttl WHERE name = 'n'")
	q.handOff(t, tx)
}

// handOff releases "n" while a transaction locks the only queue entry. The waiter gets a complete
// lease.
func (q Queue) handOff(t *testing.T, tx *sql.Tx) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.release(t, "first")
	}()
	q.awaitBlocked(t)
	var least, ends int64
	if err := tx.QueryRowContext(t.Context(), "SELECT "+q.Now+" + ttl FROM "+q.table("waiters")+" WHERE name = 'n'").Scan(&least); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	<-done
	var holder string
	row := q.DB.QueryRowContext(t.Context(), "SELECT token, expires FROM "+q.table("names")+" WHERE name = 'n'")
	if err := row.Scan(&holder, &ends); err != nil || holder != "waiter" || ends < least {
		t.Errorf("%q holds until %d, %v; want the waiter until %d at least", holder, ends, err, least)
	}
}
