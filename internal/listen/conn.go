// Package listen multiplexes subscriptions. Many calls listen on channels that come and
// go, over one connection to each server. It is independent of the client library, which
// provides a Conn.
package listen

import "context"

// A Server identifies a connection: the server, and which of the two kinds of channels.
type Server struct {
	Addr    string // any text; the connections to two servers differ in it
	Sharded bool   // the channels are those of SSUBSCRIBE, not of SUBSCRIBE
}

// Open opens a connection. ctx has the values of the first caller, and a deadline. The
// error is that of the calls that wait for the connection.
type Open func(ctx context.Context) (Conn, error)

// A Conn is a connection that Connections alone use. One goroutine calls Send and Ping, one
// calls Receive, and one calls Close, once, which makes the others return soon.
type Conn interface {
	// Send sends a command for each item, in order. It may return before or after the
	// replies, which Receive returns. After an error the connection is closed.
	Send(ops []Op) error

	// Ping sends a command without effect, to which the server replies. Receive returns
	// Pong or Refused for it.
	Ping() error

	// Receive waits for the next event. It has no time limit. After an error the
	// connection is closed.
	Receive() (Event, error)

	// Close closes the connection.
	Close()
}

// An Op subscribes a connection to a channel, or unsubscribes it.
type Op struct {
	Channel   string
	Subscribe bool
}

// Command returns the name of the command for an Op.
func (o Op) Command(sharded bool) string {
	switch {
	case o.Subscribe && sharded:
		return "SSUBSCRIBE"
	case o.Subscribe:
		return "SUBSCRIBE"
	case sharded:
		return "SUNSUBSCRIBE"
	}
	return "UNSUBSCRIBE"
}

// A Kind says what an Event is.
type Kind int

// The kinds of events. A zero Event has none of them, and is ignored.
const (
	Subscribed   Kind = iota + 1 // the connection is subscribed to Channel
	Unsubscribed                 // it no longer is: it was requested, or the slot has moved
	Refused                      // an error reply, Err. Without a Channel, it is the reply to the oldest command
	Message                      // Text was published on Channel
	Pong                         // the reply to Ping
)

// KindOf returns the Kind for the first word of a server's push, and 0 for other words.
func KindOf(word string) Kind {
	switch word {
	case "subscribe", "ssubscribe":
		return Subscribed
	case "unsubscribe", "sunsubscribe":
		return Unsubscribed
	case "message", "smessage":
		return Message
	case "pong":
		return Pong
	}
	return 0
}

// An Event is what a server sends on a connection.
type Event struct {
	Kind    Kind
	Channel string
	Text    string
	Err     error
}
