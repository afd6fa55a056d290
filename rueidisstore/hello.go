package rueidisstore

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// DialWithoutHello is a rueidis.ClientOption.DialCtxFn for a proxy that does not support HELLO,
// rueidis' first command on each connection. Its connections do not send it, and answer that it is
// unknown. twemproxy would close the connection. Also set AlwaysRESP2, DisableCache,
// ForceSingleClient, ClientSetInfo to rueidis.DisableClientSetInfo, and no ClientName.
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
