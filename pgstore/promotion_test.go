package pgstore_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/pgtest"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// startStandby starts a standby, which receives a server's changes at addr.
func startStandby(t *testing.T, primary *pgtest.Server, addr string) *pgtest.Server {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	standby, err := primary.Standby(fmt.Sprintf("primary_conninfo=host=%s port=%s user=postgres", host, port))
	if errors.Is(err, pgtest.ErrNoStandby) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, standby)
	return standby
}

// eitherURL is the URL for whichever server accepts writes.
func eitherURL(a, b *pgtest.Server) string {
	return pgtest.URL(a.Addr()+","+b.Addr()) + "&target_session_attrs=read-write&connect_timeout=2"
}

func promote(t *testing.T, standby *pgtest.Server) {
	t.Helper()
	var ok bool
	if err := newPool(t, standby.URL()).QueryRow(t.Context(), "SELECT pg_promote()").Scan(&ok); err != nil || !ok {
		t.Errorf("promote: %v, %v", ok, err)
	}
}

// With a synchronous standby, nothing is forgotten.
func TestSynchronousStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, "synchronous_standby_names=*")
	standby := startStandby(t, primary, primary.Addr())
	url := eitherURL(primary, standby)
	d, _ := newDrill(t, newPool(t, url), url)
	d.Time = 6 * time.Second
	d.Faults = sqldrill.After(d.Time/3, func() {
		primary.Kill()
		promote(t, standby)
	})
	d.RunHeld(t)
}

// An asynchronous standby forgets changes not yet received. The holder is notified, and a guard
// refuses.
func TestAsynchronousStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	primary := ownServer(t)
	proxy := redistest.NewProxy(t, primary.Addr())
	standby := startStandby(t, primary, proxy.Addr())
	pool := newPool(t, eitherURL(primary, standby))
	s := newStoreOn(t, pool)
	locks := dibs.New(s, dibs.TTL(6*time.Second))
	kept, err := locks.Mutex("kept").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waitForStandby(t, pool)
	proxy.Freeze()
	forgotten, err := locks.Mutex("forgotten").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	primary.Kill()
	proxy.Close()
	promote(t, standby)

	err = pgx.BeginFunc(t.Context(), newPool(t, standby.URL()), func(tx pgx.Tx) error { return s.GuardPgx(forgotten.Context(), tx) })
	if !errors.Is(err, dibs.ErrLost) {
		t.Errorf("guard of a forgotten lease: %v", err)
	}
	sqldrill.WantForgotten(t, forgotten, kept)
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
}

// waitForStandby waits until the standby received all changes.
func waitForStandby(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for {
		var done bool
		err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()), pg_sleep(0.01)::text").Scan(&done, nil)
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
	}
}
