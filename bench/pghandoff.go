package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/jackc/pgx/v5"
)

const aboutNotify = "baseline-notify: an array of tokens, and an unlock that removes the first one and notifies the next; not safe."

// pgPeers are the peers waiting for a lock on PostgreSQL, besides the baseline.
var pgPeers = []string{"dibs", "advisory", "try-advisory@10ms"}

// pgHandoff measures hand-offs on PostgreSQL with a network delay.
func pgHandoff(b *fixture, c config) ([]*table, error) {
	b.delay(oneWay)
	rtt, err := b.idlePing(c.time)
	if err != nil {
		return nil, err
	}
	t := handoffs("pg-handoff", aboutNotify,
		fmt.Sprintf("Through a proxy that adds %v in each direction. An idle SELECT takes %.2f ms (median).", oneWay, millis(rtt)),
		"W waiters in min(W, 4) processes lock one name, hold it for 1 ms, and lock it again at once.",
		"RTT: the median SELECT 1 of another process during the same run. commit: an UPDATE without delay, minus a SELECT 1, in the same run.",
		"beyond RTT: p50 minus commit, in round trips. Advisory locks do not commit: compare their p50 RTT.")
	t.columns = slices.DeleteFunc(t.columns, func(c column) bool { return c.name == "wire" })
	t.columns = slices.Insert(t.columns, 4,
		column{"p50 RTT", 2, median}, column{"commit µs", 0, median}, column{"beyond RTT", 2, median})
	t.bars = []bar{atMost("beyond RTT", 1.5), atLeast("Jain", 0.99), atMost("starved", 0), atMost("overlaps", 0)}
	c.waiters = c.pgWaiters
	return []*table{t}, b.fillHandoffs(t, c, rtt, "baseline-notify", pgPeers...)
}

// pgStatements counts the statements for contended locks on PostgreSQL.
func pgStatements(b *fixture, c config) ([]*table, error) {
	t := handoffs("pg-statements", aboutNotify,
		"W waiters in min(W, 4) processes lock one name, hold it for 1 ms, and lock it again at once.",
		"wire: statements of all clients for each acquisition, as pg_stat_statements counts them.")
	t.bars = []bar{atMost("wire", 2.2), atLeast("Jain", 0.99), atMost("starved", 0), atMost("overlaps", 0)}
	c.waiters = c.pgWaiters
	return []*table{t}, b.fillHandoffs(t, c, 0, "baseline-notify", pgPeers...)
}

// commitJob measures the round-trip time through the first address, and a commit's duration at the
// second, while others load the server.
func commitJob(o order, _ peer, t link) error {
	ctx := context.Background()
	var far, near *pgx.Conn
	for i, conn := range []**pgx.Conn{&far, &near} {
		var err error
		if *conn, err = pgx.Connect(ctx, pgtest.URL(o.Addrs[i])); err != nil {
			return err
		}
	}
	send := func(conn *pgx.Conn, text string) func() error {
		return func() error {
			_, err := conn.Exec(ctx, text)
			return err
		}
	}
	const empty = "SELECT 1"
	took, err := sample(t, send(far, empty), send(near, empty), send(near, "UPDATE bare_commit SET number = number + 1"))
	if err != nil {
		return err
	}
	return t.out.Encode(pingReport{RTT: took[0], Commit: took[2] - took[1]})
}
