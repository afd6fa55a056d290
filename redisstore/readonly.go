package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// read sends a read-only script. A user with read permissions can only call it as EVALSHA_RO, which
// exists since Redis 7.0: EVALSHA requires the right to write its keys. The last successful command
// is tried first.
func (s *Store) read(ctx context.Context, until time.Time, encode func(r *wire.Request)) redisconn.Reply {
	readOnly := s.readOnly.Load()
	reply := s.readAs(ctx, until, readOnly, encode)
	if !forbidden(reply.Err) {
		return reply
	}
	other := s.readAs(ctx, until, !readOnly, encode)
	switch {
	case !forbidden(other.Err):
		s.readOnly.Store(!readOnly)
		return other
	case forbiddenKey(other.Err):
		return other
	}
	return reply
}

func (s *Store) readAs(ctx context.Context, until time.Time, readOnly bool, encode func(r *wire.Request)) redisconn.Reply {
	r := s.requests.Get()
	encode(&r.Request)
	r.Reads = readOnly
	reply, _ := s.do(ctx, r, until)
	return reply
}

// forbiddenKey reports whether the user may not access a key, so that other names may be permitted.
// Redis does not have an error code for this.
func forbiddenKey(err error) bool {
	var server redisconn.ServerError
	return redisconn.HasCode(err, "NOPERM") && errors.As(err, &server) && strings.Contains(string(server), "access")
}
