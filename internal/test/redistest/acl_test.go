package redistest

import (
	"errors"
	"strings"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Users and permissions need no helper: two commands suffice.
func TestACL(t *testing.T) {
	s := Start(t)
	s.MustCmd(t, "ACL", "SETUSER", "default", "resetkeys", "~dibs:*", "-flushall")
	c := dial(t, s.Addr())
	want(t, c, "OK", "SET", "dibs:k", "v")
	wantForbidden(t, c, "SET", "other", "v")
	wantForbidden(t, c, "FLUSHALL")

	s.MustCmd(t, "ACL", "SETUSER", "default", "allkeys")
	want(t, c, "OK", "SET", "other", "v")
}

func wantForbidden(t *testing.T, c *Conn, args ...string) {
	t.Helper()
	_, err := c.Call(callContext(t, longTimeout), args...)
	var refusal redisconn.ServerError
	if !errors.As(err, &refusal) || !strings.HasPrefix(string(refusal), "NOPERM") {
		t.Errorf("%q: got %v, want NOPERM", args, err)
	}
}
