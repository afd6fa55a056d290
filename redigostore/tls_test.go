package redigostore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redigostore"
)

// The error from a connection without TLS to a port for TLS must give advice. redigo does not say
// whether a connection uses TLS, so it is not a refusal.
func TestPortForTLS(t *testing.T) {
	t.Parallel()
	server, _ := redistest.StartTLS(t)
	_, err := redigostore.New(poolOf(t, server.TLSAddr(), false)).Inspect(t.Context(), "m")
	const want = "if this port is for TLS, use redis.DialUseTLS"
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
