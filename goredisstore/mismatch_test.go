package goredisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/redis/go-redis/v9"
)

// If only one side uses TLS, a call should fail within its first attempts, and say so.
func TestOneSideUsesTLS(t *testing.T) {
	t.Parallel()
	server, config := redistest.StartTLS(t)
	for _, c := range []struct {
		addr   string
		config *tls.Config
		want   string
	}{
		{server.TLSAddr(), nil, "the server at " + server.TLSAddr() + " speaks TLS, and the client does not: use rediss://"},
		{server.Addr(), config, "the server at " + server.Addr() + " does not speak TLS, and the client does: use redis://"},
	} {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.addr}, TLSConfig: c.config, DialerRetries: 1})
		t.Cleanup(func() { cluster.Close() })
		for _, rdb := range []redis.UniversalClient{dial(t, &redis.Options{Addr: c.addr, TLSConfig: c.config, DialerRetries: 1}), cluster} {
			locks := dibs.New(goredisstore.New(rdb), dibs.Timeout(time.Minute))
			t.Cleanup(func() { locks.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // ends before the repetitions do
			defer cancel()
			start := time.Now()
			_, err := locks.Mutex("m").TryLock(ctx)
			t.Logf("FIGURE %T: %v", rdb, time.Since(start))
			var u *driver.UnavailableError
			if !errors.As(err, &u) || !u.Refused || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%T: got %v, want %s", rdb, err, c.want)
			}
		}
	}
}
