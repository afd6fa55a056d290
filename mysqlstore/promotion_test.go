package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/mysqltest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/mysqlstore"
	"github.com/go-sql-driver/mysql"
)

// A group is a server with a replica. Its connections go to whichever accepts writes.
type group struct {
	primary, replica *mysqltest.Server
	addr             atomic.Pointer[string]
}

func startGroup(t *testing.T, primary, replica []string) *group {
	t.Helper()
	g := &group{primary: ownServer(t, append(primary, "--log-bin", "--server-id=1")...)}
	r, err := g.primary.Replica(append(replica, "--log-bin", "--server-id=2")...)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, r)
	g.replica = r
	g.use(g.primary)
	return g
}

func (g *group) use(s *mysqltest.Server) {
	addr := s.Addr()
	g.addr.Store(&addr)
}

func (g *group) open(t *testing.T) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(g.primary.DSN("mysql"))
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = &mysql.NopLogger{}
	config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *g.addr.Load())
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// failOver kills the primary and promotes the replica.
func (g *group) failOver(t *testing.T) {
	t.Helper()
	g.primary.Kill()
	if err := g.replica.Promote(); err != nil {
		t.Error(err)
	}
	g.use(g.replica)
}

// With semi-synchronous replication, nothing is forgotten.
func TestSemiSynchronousReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	g := startGroup(t,
		[]string{"--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=60000"},
		[]string{"--rpl-semi-sync-slave-enabled=ON"})
	d, _ := newDrill(t, g.open(t), func() *sql.DB { return g.open(t) })
	d.Time = 6 * time.Second
	d.Faults = sqldrill.After(d.Time/3, func() { g.failOver(t) })
	d.RunHeld(t)
}

// An asynchronous replica forgets changes not yet received. The holder should be notified, and a
// guard should refuse.
func TestAsynchronousReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	g := startGroup(t, nil, nil)
	db := g.open(t)
	s := newStoreOn(t, db)
	locks := dibs.New(s, dibs.TTL(6*time.Second))
	kept, err := locks.Mutex("kept").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.replica.Wait(g.primary); err != nil {
		t.Fatal(err)
	}
	if err := g.replica.Execute("STOP SLAVE IO_THREAD"); err != nil {
		t.Fatal(err)
	}
	forgotten, err := locks.Mutex("forgotten").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g.failOver(t)

	if err := guardOnce(t, s, db, forgotten); !errors.Is(err, dibs.ErrLost) {
		t.Errorf("guard of a forgotten lease: %v", err)
	}
	sqldrill.WantForgotten(t, forgotten, kept)
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
}

// guardOnce guards an empty transaction.
func guardOnce(t *testing.T, s *mysqlstore.Store, db *sql.DB, l *dibs.Lease) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	return s.Guard(l.Context(), tx)
}
