package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The program's transactions use all connections in the pool for longer than the TTL. All leases
// are renewed meanwhile, and released at once.
func TestTransactionsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	const workers, ttl, work = 4, 3 * time.Second, 7 * time.Second
	pool := newPool(t, fmt.Sprintf("%s&pool_max_conns=%d", sharedServer(t).URL(), workers))
	s := newStoreOn(t, pool)
	locks := dibs.New(s, dibs.TTL(ttl))
	t.Cleanup(func() { locks.Close() })
	var all sync.WaitGroup
	for i := range 2 * workers { // half the workers wait for a connection
		all.Go(func() {
			name := fmt.Sprint("account ", i)
			err := locks.Mutex(name).Do(t.Context(), func(ctx context.Context) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if err := s.GuardPgx(ctx, tx); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", work.Seconds())
					return err
				})
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
}

// A store connects as the pool does: its hooks set the password, the address, the role.
func TestConnectionsHaveHooksOfPool(t *testing.T) {
	t.Parallel()
	server := sharedServer(t)
	admin := newStoreOn(t, newPool(t, server.URL()))
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	good, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	var before, after, prepared, released, closed atomic.Int64
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		before.Add(1)
		c.Host, c.Port, c.User, c.Fallbacks = good.Host, good.Port, good.User, nil
		return nil
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		after.Add(1)
		_, err := c.Exec(ctx, "SET application_name = 'hooked'")
		return err
	}
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
		return prepared.Add(1) > 1, nil // the first is rejected
	}
	config.AfterRelease = func(*pgx.Conn) bool {
		return released.Add(1) > 1
	}
	config.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := pgstore.New(pool, pgstore.Schema(admin.SchemaName()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	listening, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, "client", nil, func(e driver.Event) {
			if e.Kind == driver.EventConnected {
				listening <- struct{}{}
			}
		})
	}()
	select {
	case <-listening:
	case <-ctx.Done():
		t.Error("LISTEN does not connect")
	}
	locks := dibs.New(s)
	for range 3 {
		if err := locks.Mutex("n").Do(ctx, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
	if after.Load() < 2 || before.Load() < after.Load() || prepared.Load() < 2 || released.Load() < 2 || closed.Load() < 2 {
		t.Errorf("BeforeConnect %d times, AfterConnect %d, PrepareConn %d, AfterRelease %d, BeforeClose %d",
			before.Load(), after.Load(), prepared.Load(), released.Load(), closed.Load())
	}
	cancel()
	<-ended
}

// A network silently loses all bytes for a while. Then locks, and even requests that the program
// begins only then, succeed within 2 s, with a pool as pgx makes it.
func TestSwallowedBytes(t *testing.T) {
	for _, outage := range []time.Duration{1500 * time.Millisecond, 12 * time.Second} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, sharedServer(t).Addr())
			pool := newPool(t, pgtest.URL(proxy.Addr())+"&pool_max_conns=4")
			locks := dibs.New(newStoreOn(t, pool))
			held, err := locks.Mutex("held").Lock(t.Context(), dibs.TTL(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			var workers sync.WaitGroup
			var last, entered atomic.Int64
			begin := time.Now()
			for i := range 8 {
				workers.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						err := locks.Mutex(fmt.Sprint("name ", i)).Do(t.Context(), func(context.Context) error { return nil })
						if err == nil {
							last.Store(int64(time.Since(begin)))
							entered.Add(1)
						}
					}
				})
			}
			<-time.After(500 * time.Millisecond) // the workers are busy
			proxy.Drop()
			<-time.After(outage)
			before := entered.Load()
			proxy.Forget()
			healed := time.Now()
			const limit = 2 * time.Second
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if _, err := pool.Exec(ctx, "SELECT 1"); err != nil {
				t.Errorf("a request of the program: %v", err)
			}
			query := time.Since(healed)
			for entered.Load() < before+8 && time.Since(healed) < 3*limit {
				<-time.After(time.Millisecond) // between polls
			}
			if took := time.Since(healed); took > limit {
				t.Errorf("locks succeed %v after the network is back", took)
			} else {
				t.Logf("FIGURE after %v without a network: a request of the program succeeds after %v, 8 locks after %v", outage, query, took)
			}
			close(stop)
			workers.Wait()
			if err := held.Unlock(); err != nil {
				t.Error(err)
			}
			proxy.Thaw()
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each verb should be a single round trip at every default isolation level. So a stopped process
// keeps no name locked.
func TestVerbsAreOneRoundTrip(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, sharedServer(t).Addr())
			config, err := pgxpool.ParseConfig(pgtest.URL(proxy.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			config.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			s := newStoreOn(t, pool)
			acquire := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Hour, Weight: 1, Limit: 1}
			pair := func() {
				if reply, err := s.Acquire(t.Context(), acquire); err != nil || !reply.Held {
					t.Fatalf("%+v, %v", reply, err)
				}
				for _, err := range s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: "t", Client: "c", TTL: time.Hour, Weight: 1, Limit: 1}}) {
					if err != nil {
						t.Fatal(err)
					}
				}
				if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "t"}); err != nil {
					t.Fatal(err)
				}
			}
			pair()
			pair() // all statements are prepared
			const pairs, verbs = 5, 3
			before := proxy.Stats().Requests
			for range pairs {
				pair()
			}
			if trips := proxy.Stats().Requests - before; trips != pairs*verbs {
				t.Errorf("%d verbs took %d round trips", pairs*verbs, trips)
			}
		})
	}
}

// A slow connection should be used even if opening it takes most of a request's time: the request
// alone is a round trip.
func TestFirstRequestOnASlowConnection(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	s := newStoreOn(t, newPool(t, sharedServer(t).URL()))
	config, err := pgxpool.ParseConfig(sharedServer(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		<-time.After(limit * 6 / 10)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := pgstore.New(pool, pgstore.Schema(s.SchemaName())).Inspect(ctx, "n"); err != nil {
		t.Error(err)
	}
}

// A round trip of 800 ms is shorter than the operation timeout. So locks should work.
func TestLongWay(t *testing.T) {
	if os.Getenv("DIBS_LONG") != "1" {
		t.Skip("it measures what a busy machine cannot do: DIBS_LONG=1 enables it")
	}
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	s := newStoreOn(t, newPool(t, sharedServer(t).URL()))
	proxy.Delay(400 * time.Millisecond)
	t.Cleanup(func() { proxy.Delay(0) })
	sqldrill.LocksOnALongWay(t, pgstore.New(newPool(t, pgtest.URL(proxy.Addr())), pgstore.Schema(s.SchemaName())))
}

// A waiter whose pool is closed ends soon, with the reason.
func TestClosedPoolEndsWaits(t *testing.T) {
	t.Parallel()
	direct := newStoreOn(t, newPool(t, sharedServer(t).URL()))
	pool := newPool(t, sharedServer(t).URL())
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := pgstore.New(pool, pgstore.Schema(direct.SchemaName()))
	sqldrill.EndsWaitsWhenClosed(t, direct, s, pool.Close, "closed pool")
}
