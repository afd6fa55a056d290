// Package redisconn has the interface between redisstore and a Redis client library. An adapter
// (package goredisstore, for example) implements Conn with the user's own client. The package
// is for authors of adapters. It also has functions that several adapters need, for the slots of a
// cluster and for errors of connections. Users of dibs do not need it.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A Conn is a client of one server, of the master that Sentinels name, or of a cluster. It
// is safe for concurrent use. It wraps the user's own client, and never builds or closes
// one.
type Conn interface {
	// Traits returns what the store must know of the connection. They never change.
	Traits() Traits

	// Do sends the commands in order in one round trip and sets the reply to each. It
	// never sends a command twice, and retains none of its arguments. It must return
	// within a few seconds, or a little later than Until returns, but need not return when ctx
	// ends: the store bounds its callers itself. ctx has the values of the caller, for the
	// library's hooks; of the first caller, if the commands of several are sent together. Its
	// deadline is how long they wait for the replies.
	//
	// until is zero, unless the Conn has the trait KeepsUntil. Otherwise it is a time until
	// which the caller itself waits for Do. Do then returns soon after it. It does not wait for a
	// free connection, and sets ErrUnsent instead.
	Do(ctx context.Context, until time.Time, cmds []Cmd, replies []Reply)

	// Subscribe listens on a channel until ctx ends or the connection fails, and then
	// returns the reason. It calls on with an empty message once the server has confirmed
	// the subscription, and with each message after that. It detects an unresponsive
	// connection within seconds while busy returns true. While busy returns false, nothing
	// depends on the subscription, and Subscribe sends nothing.
	Subscribe(ctx context.Context, channel string, busy func() bool, on func(message string)) error

	// Replicate sends the call of a script, followed on the same connection, and if
	// possible in the same round trip, by WAIT, whose reply it returns. It calls answered
	// once, as soon as the script's reply has arrived. If answered returns false, the
	// caller does not wait any longer; WAIT need not be sent if it was not sent yet.
	Replicate(ctx context.Context, call Cmd, wait Wait, answered func(Reply) (wait bool)) Reply

	// Masters calls visit for each server that accepts writes, one after another, until
	// visit returns an error.
	Masters(ctx context.Context, visit func(Node) error) error
}

// Traits are what differs from one Conn to another.
type Traits struct {
	// Cluster means that keys of different slots are on different servers, so one script cannot use
	// them, and that a subscriber may be on any node.
	Cluster bool

	// KeepsUntil means that Do returns soon after until. A lone caller may then call Do itself,
	// without a change of goroutine.
	KeepsUntil bool
}

// A Pool is a Conn that can report that commands wait because other work has all connections of
// its library's pool. The store calls FullPool to explain a timeout.
type Pool interface {
	// FullPool returns the setting that limits the pool for a key, such as "PoolSize is 10". It
	// returns "" if the pool is not full, or is full of the commands of dibs.
	FullPool(key string) string
}

// A Refresher is a Conn to a cluster that can reload the map of slots. The store calls
// Refresh when slots may have moved.
type Refresher interface{ Refresh() }

// A Node is one server of several.
type Node struct {
	Addr string // host:port, for messages; empty if there is only one server
	Do   func(ctx context.Context, cmds []Cmd, replies []Reply)
}

// A Script is a Lua script.
type Script struct {
	Hash string // SHA-1 in hexadecimal digits, by which a server knows the script
	Text string
}

// A Cmd is one command: the call of a script, or the words of any other command.
type Cmd struct {
	Script *Script  // nil for another command
	Whole  bool     // send the text of the script (EVAL), not its hash (EVALSHA)
	Reads  bool     // send EVAL_RO or EVALSHA_RO: the script writes nothing, and its user may only read
	Keys   []string // of a script; all are in one slot
	Args   []string // of a script; else the words of the command
}

// Command returns a command that is not the call of a script.
func Command(words ...string) Cmd { return Cmd{Args: words} }

// Key returns the first key of a script, by which a cluster client finds the node. It
// returns "" if there is none: then any node will do.
func (c *Cmd) Key() string {
	if c.Script == nil || len(c.Keys) == 0 {
		return ""
	}
	return c.Keys[0]
}

// LoadTimeout is the time limit of a Conn for commands of which one has the text of a script.
// That is 14 kB, which take seconds over a narrow link.
const LoadTimeout = 30 * time.Second

// Loads reports whether one of the commands has the text of a script.
func Loads(cmds []Cmd) bool {
	return slices.ContainsFunc(cmds, func(c Cmd) bool { return c.Whole })
}

// PatientTimeout is the time limit of a Conn for commands whose callers wait longer than usual.
const PatientTimeout = 8 * time.Second

// Until returns until when a Conn waits for the replies to commands. That is for its usual time, or
// until the deadline of ctx if that is later. The longest is PatientTimeout, or LoadTimeout with
// the text of a script. A connection that is given up early is replaced by a new one, and the
// server executes its commands all the same.
func Until(ctx context.Context, usual time.Duration, cmds []Cmd) time.Time {
	now := time.Now()
	at, most := now.Add(usual), now.Add(PatientTimeout)
	if Loads(cmds) {
		return now.Add(LoadTimeout)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.After(at) {
		at = deadline
	}
	if at.After(most) {
		return most
	}
	return at
}

// Head returns the words before the keys: EVALSHA, the hash and the number of keys. It
// returns none if the command is not the call of a script.
func (c *Cmd) Head() []string {
	if c.Script == nil {
		return nil
	}
	name, script := c.Call()
	return []string{*name, *script, strconv.Itoa(len(c.Keys))}
}

// Call returns the command that calls the script, and the text or the hash of it.
func (c *Cmd) Call() (name, script *string) {
	switch {
	case c.Whole && c.Reads:
		return &evalRO, &c.Script.Text
	case c.Whole:
		return &eval, &c.Script.Text
	case c.Reads:
		return &evalshaRO, &c.Script.Hash
	}
	return &evalsha, &c.Script.Hash
}

// Commands, as variables: a pointer to one costs no allocation as an argument.
var eval, evalRO, evalsha, evalshaRO = "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"

// Words returns all words of the command.
func (c *Cmd) Words() []string {
	head := c.Head()
	words := make([]string, 0, len(head)+len(c.Keys)+len(c.Args))
	return append(append(append(words, head...), c.Keys...), c.Args...)
}

// Wait is the command WAIT.
type Wait struct {
	Replicas int
	Timeout  time.Duration // a multiple of 1 ms
}

// Cmd returns the command.
func (w Wait) Cmd() Cmd {
	return Command("WAIT", strconv.Itoa(w.Replicas), strconv.FormatInt(w.Timeout.Milliseconds(), 10))
}

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
// connection was free, and the caller itself waits. An adapter's error wraps it if the library
// has waited for a connection of its pool.
var ErrUnsent = errors.New("not sent")

// PoolError returns the error of commands that were not sent because a pool is full. setting is
// what FullPool returns.
func PoolError(setting string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnsent, PoolAdvice(setting), err)
}

// PoolAdvice says that a pool is full, and what to do.
func PoolAdvice(setting string) string {
	return "no connection was free in the pool of the client (" + setting + "): use a larger pool, or fewer connections for other work"
}

// ErrClosed is wrapped by an adapter's error when the user's client is closed: nothing
// was sent, and a retry is of no use.
var ErrClosed = errors.New("redis client closed")

// IsTimeout reports whether a Conn gave up waiting.
func IsTimeout(err error) bool {
	if err == nil {
		return false
	}
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
