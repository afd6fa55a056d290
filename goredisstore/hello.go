package goredisstore

import (
	"context"
	"net"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// A Dialer is the type needed in redis.Options.Dialer.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// WithoutHello returns a Dialer for connections to a proxy without support for HELLO, go-redis'
// first command on each connection. Its connections do not send it, and answer that it is unknown;
// go-redis then sends AUTH if there is a password. twemproxy would close the connection. Codis
// would pass HELLO on to a server, and drop its own connection to this server for the reply. dial
// is usually redis.NewDialer(options). Also set Protocol to 2, DisableIdentity, and no ClientName.
func WithoutHello(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return redisconn.AnswerHello(conn), nil
	}
}
