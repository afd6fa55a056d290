package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// poolSize is the number of connections in a process.
	poolSize = 16

	// sessions is the number with advisory locks, which need a connection for each holder and
	// waiter.
	sessions = 64
)

// onPostgres counts all clients' statements: see pgServer.work.
type onPostgres struct{}

func (onPostgres) Wire() []string { return []string{"statements"} }

func openPool(s endpoint, connections int) (*pgxpool.Pool, error) {
	return pgxpool.New(context.Background(), fmt.Sprintf("%s&pool_max_conns=%d", pgtest.URL(s.addr), connections))
}

// An executor is a pool or a connection.
type executor interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
}

// one executes a statement that affects a single row. Otherwise it returns an error.
func one(ctx context.Context, on executor, otherwise error, text string, args ...any) error {
	done, err := on.Exec(ctx, text, args...)
	if err == nil && done.RowsAffected() != 1 {
		return otherwise
	}
	return err
}

// A pgDibsPeer is dibs on PostgreSQL.
type pgDibsPeer struct {
	onPostgres
	dibsPeer
}

func (p pgDibsPeer) Wire() []string { return p.onPostgres.Wire() }

func openPgDibs(s endpoint) (peer, error) {
	pool, err := openPool(s, poolSize)
	if err != nil {
		return nil, err
	}
	return pgDibsPeer{dibsPeer: dibsPeer{dibs.New(pgstore.New(pool), dibs.TTL(s.ttl))}}, nil
}

// A pgBaseline sends the minimum for a lease in a table: an INSERT that replaces an expired row,
// and a DELETE. It does not wait, and has no fences.
type pgBaseline struct {
	onPostgres
	pool *pgxpool.Pool
	ttl  time.Duration
	seq  atomic.Uint64
}

func openPgBaseline(s endpoint) (peer, error) { return newPgBaseline(s) }

func newPgBaseline(s endpoint) (*pgBaseline, error) {
	pool, err := openPool(s, poolSize)
	return &pgBaseline{pool: pool, ttl: s.ttl}, err
}

func (p *pgBaseline) Lock(ctx context.Context, name string) (func() error, error) {
	token := strconv.FormatUint(p.seq.Add(1), 10)
	if err := p.insert(ctx, name, token); err != nil {
		return nil, err
	}
	return func() error {
		return one(ctx, p.pool, errNotHeld, "DELETE FROM bare_locks WHERE name = $1 AND token = $2", name, token)
	}, nil
}

func (p *pgBaseline) insert(ctx context.Context, name, token string) error {
	return one(ctx, p.pool, errTaken, `
		INSERT INTO bare_locks VALUES ($1, $2, now() + $3) ON CONFLICT (name) DO UPDATE
		SET token = excluded.token, expires = excluded.expires WHERE bare_locks.expires < now()`, name, token, p.ttl)
}

// A pgRenewBaseline is the minimum for renewing many leases: a set of names, and a goroutine that
// extends 500 names in a statement.
type pgRenewBaseline struct {
	*pgBaseline
	mu    sync.Mutex
	names []string
	lost  atomic.Bool // at least one lease
}

func openPgRenewBaseline(s endpoint) (peer, error) {
	p, err := newPgBaseline(s)
	if err != nil {
		return nil, err
	}
	r := &pgRenewBaseline{pgBaseline: p}
	go r.loop()
	return r, nil
}

// Keep implements renewingPeer.
func (r *pgRenewBaseline) Keep(ctx context.Context, name string) (heldLease, error) {
	if err := r.insert(ctx, name, renewToken); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
	return r, nil
}

// Lost implements heldLease, for all leases together.
func (r *pgRenewBaseline) Lost() bool { return r.lost.Load() }

func (r *pgRenewBaseline) loop() {
	const batch = 500
	for range time.Tick(r.ttl / 3) {
		r.mu.Lock()
		names := r.names[:len(r.names):len(r.names)]
		r.mu.Unlock()
		for len(names) > 0 {
			part := names[:min(batch, len(names))]
			names = names[len(part):]
			done, err := r.pool.Exec(context.Background(), "UPDATE bare_locks SET expires = now() + $3 WHERE name = ANY ($1) AND token = $2", part, renewToken, r.ttl)
			if err != nil || done.RowsAffected() < int64(len(part)) {
				r.lost.Store(true)
			}
		}
	}
}

// An advisoryPeer is a session's advisory lock. It has no TTL and no fences, and needs a connection
// for each lock and each waiter.
type advisoryPeer struct {
	onPostgres
	pool *pgxpool.Pool
	poll time.Duration // between two tries; 0: the server lets the session wait
}

func openAdvisory(poll time.Duration) opener {
	return func(s endpoint) (peer, error) {
		pool, err := openPool(s, sessions)
		return &advisoryPeer{pool: pool, poll: poll}, err
	}
}

func (p *advisoryPeer) Lock(ctx context.Context, name string) (func() error, error) {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.lock(ctx, conn, name); err != nil {
		conn.Release()
		return nil, err
	}
	return func() error {
		defer conn.Release()
		return one(ctx, conn, errNotHeld, "SELECT 1 WHERE pg_advisory_unlock(hashtextextended($1, 0))", name)
	}, nil
}

func (p *advisoryPeer) lock(ctx context.Context, conn *pgxpool.Conn, name string) error {
	if p.poll == 0 {
		_, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
		return err
	}
	for {
		err := one(ctx, conn, errTaken, "SELECT 1 WHERE pg_try_advisory_lock(hashtextextended($1, 0))", name)
		if !errors.Is(err, errTaken) {
			return err
		}
		select {
		case <-time.After(p.poll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A pgNotifyBaseline is the minimum for a hand-off with a notification. It is an array of tokens,
// and an unlock that removes the first and notifies the next waiter's process. It is not safe: a
// waiter that dies or gives up blocks the queue without end.
type pgNotifyBaseline struct {
	onPostgres
	pool    *pgxpool.Pool
	channel string
	seq     atomic.Uint64
	waiting grants
}

func openPgNotifyBaseline(s endpoint) (peer, error) {
	ctx := context.Background()
	pool, err := openPool(s, poolSize)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, pgtest.URL(s.addr))
	if err != nil {
		return nil, err
	}
	p := &pgNotifyBaseline{pool: pool, channel: fmt.Sprintf("grant_%d", os.Getpid())}
	if _, err := conn.Exec(ctx, "LISTEN "+p.channel); err != nil {
		return nil, err
	}
	go p.listen(ctx, conn)
	return p, nil
}

// listen wakes the waiters granted the lock.
func (p *pgNotifyBaseline) listen(ctx context.Context, conn *pgx.Conn) {
	for {
		m, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		p.waiting.wake(m.Payload)
	}
}

func (p *pgNotifyBaseline) Lock(ctx context.Context, name string) (func() error, error) {
	token := p.channel + "." + strconv.FormatUint(p.seq.Add(1), 10)
	err := p.waiting.wait(ctx, token, func() (taken bool, err error) {
		err = p.pool.QueryRow(ctx, `
			INSERT INTO bare_queues VALUES ($1, ARRAY[$2]) ON CONFLICT (name) DO UPDATE
			SET queue = bare_queues.queue || excluded.queue RETURNING cardinality(queue) = 1`, name, token).Scan(&taken)
		return taken, err
	})
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := p.pool.Exec(ctx, `
			WITH next AS (UPDATE bare_queues SET queue = queue[2:] WHERE name = $1 RETURNING queue[1] AS head)
			SELECT pg_notify(split_part(head, '.', 1), head) FROM next WHERE head IS NOT NULL`, name)
		return err
	}, nil
}
