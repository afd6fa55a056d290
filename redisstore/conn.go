package redisstore

import (
	"context"
	"errors"
)

// A Conn is all that this package asks of a Redis client library. It is safe
// for concurrent use. An adapter (package goredisstore, for example) wraps the user's own
// client; it never builds or closes one.
type Conn interface {
	// Do sends the commands in order in one round trip and sets the reply to each.
	// The store bounds its callers itself, so Do need not heed ctx (see Prompt for
	// those that do), but must end within a few seconds. It never sends a command twice, and keeps nothing of
	// what it was given. ctx has the values of the caller, or of the first one of
	// several whose commands go together, for the library's hooks.
	Do(ctx context.Context, cmds []Cmd, replies []Reply)

	// Subscribe listens on a channel until ctx ends or the connection fails, and
	// then returns why. It calls on with an empty message once the server has
	// confirmed the subscription, and with each message after that. It notices
	// within seconds that a connection has gone mute.
	Subscribe(ctx context.Context, channel string, on func(message string)) error

	// Replicate is Do of one command, followed on the same connection and in the same
	// round trip by WAIT, whose reply it returns. It calls answered once, with the
	// command's reply, as soon as that has come: if answered returns false the caller
	// waits no more, and WAIT need not be sent if it was not yet. The command's first
	// key is its third argument.
	Replicate(ctx context.Context, cmd, wait Cmd, answered func(Reply) (wait bool)) Reply

	// Masters calls visit for each server that takes writes, one after another, until
	// it returns an error.
	Masters(ctx context.Context, visit func(Node) error) error
}

// A Refresher is a Conn to a cluster that can be told that slots may have changed
// hands, and looks who has them.
type Refresher interface{ Refresh() }

// A Node is one server of several.
type Node struct {
	Addr string // host:port, for people; empty if it is the only one
	Do   func(ctx context.Context, cmds []Cmd, replies []Reply)
}

// A Cmd is one command with its arguments: EVALSHA, sha, 1, key, …
type Cmd []string

// A Reply is a server's answer to one Cmd: nil, int64, string, or []any of these.
type Reply struct {
	Value any
	Err   error // a ServerError if the server sent one; else the connection's
}

// A ServerError is an error reply, such as "WRONGTYPE Operation against a key
// holding the wrong kind of value".
type ServerError string

func (e ServerError) Error() string { return string(e) }

// ErrUnsent is what a Conn returns for commands that it did not send, because no connection
// is free now and it has a deadline.
var ErrUnsent = errors.New("not sent: no connection is free")

// ErrClosed is what an adapter wraps when the user's client was closed: nothing
// was sent, and asking again is of no use.
var ErrClosed = errors.New("redis client closed")
