package rueidisstore

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// DialWithoutHello is a rueidis.ClientOption.DialCtxFn for a proxy that does not support HELLO,
// rueidis' first command on each connection. Its connections do not send HELLO to the proxy, and
// reply to rueidis that the command is unknown. With HELLO, twemproxy would close the connection.
// In rueidis.ClientOption, also set AlwaysRESP2, DisableCache and ForceSingleClient to true, and
// ClientSetInfo to rueidis.DisableClientSetInfo. Leave ClientName empty.
func DialWithoutHello(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	dial := dialer.DialContext
	if config != nil {
		dial = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return redisconn.AnswerHello(conn), nil
}
