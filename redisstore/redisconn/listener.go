package redisconn

import "context"

// A Listener is a Conn that can listen on channels which come and go. The store uses it to
// hear of a release by another library. With a Conn that is no Listener, a waiter polls.
type Listener interface {
	// Listen listens on a channel until ctx ends or the connection fails, and then returns
	// the reason. Many concurrent calls share one connection, which is not that of
	// Subscribe. Calls with and without sharded have one each.
	//
	// Listen calls on with an empty message once the server has confirmed the subscription,
	// and with each message after that. It may call on from any goroutine, but not after it
	// has returned, and on returns at once. When the last call on a channel has returned, the
	// channel is unsubscribed.
	//
	// With sharded, the channel is one of SPUBLISH. On a cluster its messages reach only the
	// node that has the channel's slot, so there is one connection for each such node. A
	// call ends with an error when the slot moves to another node, and with the server's
	// error before Redis 7.
	Listen(ctx context.Context, channel string, sharded bool, on func(message string)) error
}
