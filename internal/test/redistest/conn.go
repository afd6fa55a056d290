package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// ioTimeout bounds a call's I/O if its ctx has no deadline.
const ioTimeout = 5 * time.Second

var errClosed = fmt.Errorf("redistest: %w", redisconn.ErrClosed)

// A Conn is a RESP2 client for a single server. It opens as many connections as there are
// concurrent calls. Tests of the stores use it in place of a client library.
//
// It does no more than its interface requires: no retry, no automatic reconnect, no health check.
// So a store sees every injected fault.
type Conn struct {
	// Password, if not empty, is sent on each new connection. Set it before the first
	// call.
	Password string

	addr string

	mu     sync.Mutex
	closed bool
	idle   []*wire // the last was used last
	open   map[*wire]struct{}
}

var _ redisconn.Conn = (*Conn)(nil)

// Dial returns a Conn to a host:port. It connects on first use.
func Dial(addr string) *Conn {
	return &Conn{addr: addr, open: make(map[*wire]struct{})}
}

// Close closes every connection, including those in use. Later calls fail.
func (c *Conn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for w := range c.open {
		w.conn.Close()
	}
	c.idle = nil
}

// Do implements redisconn.Conn. It sends the commands in one write and reads all replies. It ends
// at ctx's deadline, or after a second without a deadline. A connection with a missing or invalid
// reply is not used again.
func (c *Conn) Do(ctx context.Context, until time.Time, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	c.do(ctx, cmds, replies)
}

func (c *Conn) do(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) {
	answered, err := c.exchange(ctx, cmds, replies)
	for i := answered; i < len(cmds); i++ {
		replies[i] = redisconn.Reply{Err: err}
	}
}

// Call is Do for a single command.
func (c *Conn) Call(ctx context.Context, args ...string) (any, error) {
	var reply [1]redisconn.Reply
	c.do(ctx, []redisconn.Cmd{redisconn.Command(args...)}, reply[:])
	return reply[0].Value, reply[0].Err
}

func (c *Conn) exchange(ctx context.Context, cmds []redisconn.Cmd, replies []redisconn.Reply) (answered int, err error) {
	if len(cmds) == 0 {
		return 0, nil
	}
	var request []byte
	for _, cmd := range cmds {
		if request, err = appendCommand(request, cmd.Words()); err != nil {
			return 0, err
		}
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	w, err := c.get(ctx)
	if err != nil {
		return 0, err
	}
	answered, err = w.exchange(ctx, request, replies[:len(cmds)])
	c.put(w, err)
	return answered, err
}

func (c *Conn) get(ctx context.Context) (*wire, error) {
	if w := c.getIdle(); w != nil {
		return w, nil
	}
	return c.connect(ctx)
}

func (c *Conn) getIdle() *wire {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		return nil
	}
	w := c.idle[last]
	c.idle = c.idle[:last]
	return w
}

// connect opens a new connection outside the pool.
func (c *Conn) connect(ctx context.Context) (*wire, error) {
	if c.isClosed() {
		return nil, errClosed
	}
	dialer := net.Dialer{Timeout: ioTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, r: bufio.NewReaderSize(conn, maxLine)}
	if err := c.register(w); err != nil {
		return nil, err
	}
	if err := c.authenticate(ctx, w); err != nil {
		c.drop(w)
		return nil, err
	}
	return w, nil
}

func (c *Conn) authenticate(ctx context.Context, w *wire) error {
	if c.Password == "" {
		return nil
	}
	auth, err := appendCommand(nil, []string{"AUTH", c.Password})
	if err != nil {
		return err
	}
	var reply [1]redisconn.Reply
	if _, err := w.exchange(ctx, auth, reply[:]); err != nil {
		return err
	}
	return reply[0].Err
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// register makes Close responsible for w.
func (c *Conn) register(w *wire) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		w.conn.Close()
		return errClosed
	}
	c.open[w] = struct{}{}
	return nil
}

func (c *Conn) drop(w *wire) {
	w.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, w)
}

// put returns a healthy connection to the pool. After a failure it also drops the idle connections:
// the server is probably down, and each idle connection would cost another call.
func (c *Conn) put(w *wire, err error) {
	if err != nil || w.unusable {
		c.drop(w)
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.dropIdle()
	}
	if err != nil || w.unusable {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.idle = append(c.idle, w)
	}
}

func (c *Conn) dropIdle() {
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, w := range idle {
		c.drop(w)
	}
}

// Replicate implements redisconn.Conn. It reads both replies before it reports the first, so tests
// that interrupt WAIT need a client library.
func (c *Conn) Replicate(ctx context.Context, call redisconn.Cmd, wait redisconn.Wait, answered func(redisconn.Reply) bool) redisconn.Reply {
	var replies [2]redisconn.Reply
	c.do(ctx, []redisconn.Cmd{call, wait.Cmd()}, replies[:])
	answered(replies[0])
	return replies[1]
}

// Masters implements redisconn.Conn.
func (c *Conn) Masters(_ context.Context, visit func(redisconn.Node) error) error {
	return visit(redisconn.Node{Addr: c.addr, Do: c.do})
}

// Scan iterates over the server's whole keyspace. Like SCAN it may report a key twice.
func (c *Conn) Scan(ctx context.Context, match string, on func(keys []string)) error {
	cursor := "0"
	for {
		page, err := c.Call(ctx, "SCAN", cursor, "MATCH", match, "COUNT", "1000")
		if err != nil {
			return err
		}
		var keys []string
		if cursor, keys, err = parseScan(page); err != nil {
			return err
		}
		if len(keys) > 0 {
			on(keys)
		}
		if cursor == "0" {
			return nil
		}
	}
}

func parseScan(value any) (cursor string, keys []string, err error) {
	malformed := fmt.Errorf("%w: unexpected SCAN reply %v", errProtocol, value)
	pair, _ := value.([]any)
	if len(pair) != 2 {
		return "", nil, malformed
	}
	cursor, ok := pair[0].(string)
	items, ok2 := pair[1].([]any)
	if !ok || !ok2 {
		return "", nil, malformed
	}
	for _, item := range items {
		key, ok := item.(string)
		if !ok {
			return "", nil, malformed
		}
		keys = append(keys, key)
	}
	return cursor, keys, nil
}
