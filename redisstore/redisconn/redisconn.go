// Package redisconn contains the interface between redisstore and a Redis client library. An
// adapter, such as package goredisstore, implements Conn with the user's own client. The package is
// for adapter authors. It also contains shared code for adapters, about cluster slots and
// connection errors. Users of dibs do not need it.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A Conn is a client for a single server, for the master named by Sentinels, or for a cluster. It
// is safe for concurrent use. It wraps the user's own client, and never builds or closes a client.
type Conn interface {
	// Traits returns the connection's properties needed by the store. They never change.
	Traits() Traits

	// Do sends the commands in order, in a single round trip, and sets the reply to each. It never
	// sends a command twice, and keeps no arguments after it returns. Do must return within a few
	// seconds, or shortly after the time from function Until. It need not return when ctx ends,
	// because the store limits its callers' waits itself.
	//
	// ctx contains the caller's values, for the library's hooks. If commands from several callers
	// are sent together, these are the first caller's values. ctx's deadline is the callers' time
	// limit for the replies.
	//
	// A Conn without the trait KeepsUntil always receives a zero until. Any other until means that
	// the caller itself waits for Do, until this time. Do must then return soon after until. It
	// must not wait for a free connection, but set ErrUnsent.
	Do(ctx context.Context, until time.Time, cmds []Cmd, replies []Reply)

	// Subscribe listens on a channel until ctx ends or the connection fails, and returns the
	// reason. It calls the function on with an empty message when the server confirms the
	// subscription, and then with each message. While busy returns true, Subscribe must detect an
	// unresponsive connection within seconds. While busy returns false, nothing depends on the
	// subscription, and Subscribe sends nothing.
	Subscribe(ctx context.Context, channel string, busy func() bool, on func(message string)) error

	// Replicate sends a script call and then, on the same connection, WAIT, if possible in the same
	// round trip. It returns WAIT's reply. It calls answered once, as soon as the script's reply
	// arrives. If answered returns false, the caller waits no longer; if WAIT was not yet sent,
	// Replicate need not send it.
	Replicate(ctx context.Context, call Cmd, wait Wait, answered func(Reply) (wait bool)) Reply

	// Masters calls visit for each writable server, in sequence, until visit returns an error.
	Masters(ctx context.Context, visit func(Node) error) error
}

// Traits are the properties in which Conns differ.
type Traits struct {
	// Cluster means that keys in different slots are on different servers, so a script cannot use
	// them together. A subscription can be on any node.
	Cluster bool

	// KeepsUntil means that Do returns soon after until. Then a lone caller can call Do itself,
	// without a change of goroutine.
	KeepsUntil bool
}

// A Pool is a Conn that can report when commands wait because other work occupies its library's
// pool. The store calls FullPool to explain a timeout.
type Pool interface {
	// FullPool returns the setting that limits the pool for a key, such as "PoolSize is 10". It
	// returns "" if the pool is not full, or is full with dibs' commands.
	FullPool(key string) string
}

// A Refresher is a Conn to a cluster that can reload the slot map. The store calls Refresh when
// slots may have moved.
type Refresher interface{ Refresh() }

// A Node is a single server in a deployment.
type Node struct {
	Addr string // host:port, for messages; empty if there is a single server
	Do   func(ctx context.Context, cmds []Cmd, replies []Reply)
}

// A Script is a Lua script.
type Script struct {
	Hash string // SHA-1 in hexadecimal digits, by which a server finds the script
	Text string
}

// A Cmd is a script call, or any other command's words.
type Cmd struct {
	Script *Script  // nil for another command
	Whole  bool     // send the script's text (EVAL), not its hash (EVALSHA)
	Reads  bool     // send EVAL_RO or EVALSHA_RO: the script writes nothing, and its user may only read
	Keys   []string // for a script; all are in the same slot
	Args   []string // for a script; otherwise the command's words
}

// Command returns a command other than a script call.
func Command(words ...string) Cmd { return Cmd{Args: words} }

// Key returns a script's first key, by which a cluster client can find the node. It returns "" if
// there is none: then any node can run it.
func (c *Cmd) Key() string {
	if c.Script == nil || len(c.Keys) == 0 {
		return ""
	}
	return c.Keys[0]
}

// LoadTimeout is a Conn's time limit for commands with a script's text. A text is about 14 kB long,
// which takes seconds over a narrow link.
const LoadTimeout = 30 * time.Second

// Loads reports whether any command includes a script's text.
func Loads(cmds []Cmd) bool {
	return slices.ContainsFunc(cmds, func(c Cmd) bool { return c.Whole })
}

// PatientTimeout is a Conn's time limit for commands whose callers wait longer than usual.
const PatientTimeout = 8 * time.Second

// Until returns how long a Conn should wait for the commands' replies, as a time. With a script's
// text, it is LoadTimeout from now. Otherwise it is the usual wait from now, or ctx's deadline if
// that is later, but at most PatientTimeout from now. If the Conn closes a connection earlier, the
// server still executes its commands.
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

// Head returns the words before the keys: EVALSHA, the hash and the number of keys. It returns none
// for commands other than script calls.
func (c *Cmd) Head() []string {
	if c.Script == nil {
		return nil
	}
	name, script := c.Call()
	return []string{*name, *script, strconv.Itoa(len(c.Keys))}
}

// Call returns the command for the script call, and the script's text or hash.
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

// Commands, as variables: a pointer to a variable costs no allocation as an argument.
var eval, evalRO, evalsha, evalshaRO = "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"

// Words returns all words in the command.
func (c *Cmd) Words() []string {
	head := c.Head()
	words := make([]string, 0, len(head)+len(c.Keys)+len(c.Args))
	return append(append(append(words, head...), c.Keys...), c.Args...)
}

// Wait is the command WAIT.
type Wait struct {
	Replicas int
	Timeout  time.Duration // in whole milliseconds
}

// Cmd returns the command.
func (w Wait) Cmd() Cmd {
	return Command("WAIT", strconv.Itoa(w.Replicas), strconv.FormatInt(w.Timeout.Milliseconds(), 10))
}

// A Reply is a server's reply to a Cmd: nil, int64, string, or []any with these.
type Reply struct {
	Value any
	Err   error // a ServerError if the server sent it; otherwise the connection's error
}

// A ServerError is an error reply, such as "WRONGTYPE Operation against a key holding the wrong
// kind of value".
type ServerError string

func (e ServerError) Error() string { return string(e) }

// ErrUnsent is a Conn's error for unsent commands: no connection was free, and the caller itself
// waits. An adapter's error should wrap it if the library waited for a connection from its pool.
var ErrUnsent = errors.New("not sent")

// PoolError returns the error for unsent commands when a pool is full. setting is FullPool's
// result.
func PoolError(setting string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnsent, PoolAdvice(setting), err)
}

// PoolAdvice says that a pool is full, and how to solve this.
func PoolAdvice(setting string) string {
	return "no connection was free in the pool of the client (" + setting + "): use a larger pool, or fewer connections for other work"
}

// ErrClosed is wrapped by an adapter's error when the user's client is closed: nothing was sent,
// and a retry is useless.
var ErrClosed = errors.New("redis client closed")

// IsTimeout reports whether a Conn gave up waiting.
func IsTimeout(err error) bool {
	if err == nil {
		return false
	}
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
