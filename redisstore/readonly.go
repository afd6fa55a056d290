package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dibslock/dibs/redisstore/internal/wire"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// read sends a script that writes nothing. A user that may only read may call it as
// EVALSHA_RO, which servers have since 7.0: EVALSHA requires the right to write its keys. The
// way that has worked last is tried first.
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

// forbiddenKey reports whether the user has no right to a key, so that other names may be
// permitted. Redis has no code for that.
func forbiddenKey(err error) bool {
	var server redisconn.ServerError
	return redisconn.HasCode(err, "NOPERM") && errors.As(err, &server) && strings.Contains(string(server), "access")
}
