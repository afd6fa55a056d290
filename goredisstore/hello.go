package goredisstore

import (
	"context"
	"net"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Dialer is the type needed in redis.Options.Dialer.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// WithoutHello returns a Dialer for a proxy without support for HELLO, go-redis' first command on
// each connection. Its connections do not send HELLO to the proxy. They reply to go-redis that the
// command is unknown, and go-redis then sends AUTH if there is a password.
//
// With HELLO, twemproxy would close the connection. Codis would forward HELLO to a server, and
// close its own connection to this server after the reply. dial opens the connections; it is
// usually redis.NewDialer(options). Also set Protocol to 2 and DisableIdentity to true in
// redis.Options, and leave ClientName empty.
func WithoutHello(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return redisconn.AnswerHello(conn), nil
	}
}
