package redisstore

import (
	"context"
	"errors"
)

// A Conn is what this package needs from a Redis client library. It is safe for
// concurrent use. An adapter (package goredisstore, for example) wraps the user's own
// client; it never builds or closes one.
type Conn interface {
	// Do sends the commands in order in one round trip and sets the reply to each. It
	// need not return when ctx ends, because the store bounds its callers itself (see
	// Prompt for the exception), but it must return within a few seconds. It never sends
	// a command twice, and retains none of its arguments. ctx has the values of the
	// caller, for the library's hooks; of the first caller, if the commands of several
	// are sent together.
	Do(ctx context.Context, cmds []Cmd, replies []Reply)

	// Subscribe listens on a channel until ctx ends or the connection fails, and then
	// returns the reason. It calls on with an empty message once the server has confirmed
	// the subscription, and with each message after that. It detects an unresponsive
	// connection within seconds.
	Subscribe(ctx context.Context, channel string, on func(message string)) error

	// Replicate is Do of one command, followed on the same connection and in the same
	// round trip by WAIT, whose reply it returns. It calls answered once, as soon as the
	// command's reply has arrived. If answered returns false, the caller does not wait
	// any longer; WAIT need not be sent if it was not sent yet. The command's first key
	// is its third argument.
	Replicate(ctx context.Context, cmd, wait Cmd, answered func(Reply) (wait bool)) Reply

	// Masters calls visit for each server that accepts writes, one after another, until
	// visit returns an error.
	Masters(ctx context.Context, visit func(Node) error) error
}

// A Refresher is a Conn to a cluster that can reload the map of slots. The store calls
// Refresh when slots may have moved.
type Refresher interface{ Refresh() }

// A Node is one server of several.
type Node struct {
	Addr string // host:port, for messages; empty if there is only one server
	Do   func(ctx context.Context, cmds []Cmd, replies []Reply)
}

// A Cmd is one command with its arguments: EVALSHA, sha, 1, key, …
type Cmd []string

// A Reply is a server's reply to one Cmd: nil, int64, string, or []any of these.
type Reply struct {
	Value any
	Err   error // a ServerError if the server sent one; else the connection's error
}

// A ServerError is an error reply, such as "WRONGTYPE Operation against a key
// holding the wrong kind of value".
type ServerError string

func (e ServerError) Error() string { return string(e) }

// ErrUnsent is the error of a Conn for commands that it did not send because no
// connection was free and ctx has a deadline.
var ErrUnsent = errors.New("not sent: no connection is free")

// ErrClosed is wrapped by an adapter's error when the user's client is closed: nothing
// was sent, and a retry is of no use.
var ErrClosed = errors.New("redis client closed")
