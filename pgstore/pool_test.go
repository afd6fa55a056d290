package pgstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/internal/test/sqldrill"
	"github.com/dibslock/dibs/pgstore"
)

// The program's other work can use all its pool's connections. The error for an unresponsive
// server does not mention a pool.
func TestFullPoolDelaysNoLock(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, sharedServer(t).Addr())
	pool := newPool(t, "postgres://postgres@"+proxy.Addr()+"/postgres?sslmode=disable&pool_max_conns=1")
	s := newStoreOn(t, pool)
	locks := dibs.New(s, dibs.Timeout(2*time.Second))
	t.Cleanup(func() { locks.Close() })
	other, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Release)
	l, err := locks.Mutex("m").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}

	proxy.Freeze()
	t.Cleanup(proxy.Thaw)
	sqldrill.NamesNoPoolWhileItHangs(t, s)
}

// A TLS mistake ends a call at its first attempt, with advice.
func TestMistakesAboutTLS(t *testing.T) {
	t.Parallel()
	const request = 8
	for mode, c := range map[string]struct{ addr, want string }{
		"verify-full": {sqldrill.StartsTLS(t, nil, request, "S"), "is not trusted: add its CA"},
		"require":     {sharedServer(t).Addr(), "the server refused TLS: use sslmode=disable"},
	} {
		sqldrill.RefusesAtOnce(t, mode, pgstore.New(newPool(t, "postgres://postgres@"+c.addr+"/postgres?sslmode="+mode)), c.want)
	}
}
