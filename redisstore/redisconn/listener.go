package redisconn

import "context"

// A Listener is a Conn that can listen on channels which come and go. The store uses it to
// hear of a release by another library. With a Conn that is no Listener, a waiter polls.
type Listener interface {
	// Listen listens on a channel until ctx ends or the connection fails, and then returns
	// the reason. Many concurrent calls share one connection, and none of the user's pool.
	// It calls on with an empty message once the server has confirmed the subscription, and
	// with each message after that. It may call on from any goroutine, and on returns at
	// once. When Listen has returned, the server does not send the channel any longer,
	// unless another call listens on it.
	//
	// With sharded, the channel is one of SPUBLISH. On a cluster its messages reach only the
	// node that has the channel's slot, so there is one connection for each such node. A
	// call ends with an error when the slot moves to another node.
	Listen(ctx context.Context, channel string, sharded bool, on func(message string)) error
}
