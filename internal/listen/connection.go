package listen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	openTimeout = 5 * time.Second
	interval    = time.Second // between checks of a connection
	maxSilent   = 2           // checks without anything from the server; the first one pings
	maxIdle     = 3           // checks without a call
)

var (
	errNotOpen      = fmt.Errorf("the connection of the subscription is not open after %v: %w", openTimeout, context.DeadlineExceeded)
	errMoved        = errors.New("the server has ended the subscription: the slot of the channel has moved to another node")
	errUnresponsive = errors.New("the server does not respond on the connection of the subscription")
	errIdle         = errors.New("no call is left")
)

// connection is a connection to a server, from before it is open. Connections.mu guards
// what is below all.
type connection struct {
	server Server
	ended  chan struct{} // closed when err is set
	work   chan struct{} // holds a value if the writer has something to send

	all      *Connections
	channels map[string]*channel
	changed  []*channel // may be stale
	inFlight []*channel // one for each command without a reply, the oldest first; nil for a ping
	pingDue  bool
	received bool // something since the last check
	silent   int  // checks since then
	idle     int  // checks without a call
	worked   bool // the server has sent something
	err      error
}

func newConnection(all *Connections, server Server) *connection {
	return &connection{
		server: server, ended: make(chan struct{}), work: make(chan struct{}, 1),
		all: all, channels: make(map[string]*channel),
	}
}

// run opens the connection, uses it, and closes it.
func (c *connection) run(ctx context.Context, open Open) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errNotOpen)
	defer cancel()
	conn, err := Await(ctx, func() (Conn, error) { return open(ctx) }, Conn.Close)
	if err != nil {
		c.end(err)
		return
	}
	var loops sync.WaitGroup
	defer loops.Wait()
	defer conn.Close()
	loops.Go(func() { c.end(c.read(conn)) })
	loops.Go(func() { c.end(c.write(conn)) })
	c.monitor()
}

// monitor checks the connection until it has ended.
func (c *connection) monitor() {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.check()
		case <-c.ended:
			return
		}
	}
}

// check ends the connection if it is no longer needed, or if the server does not respond
// to a ping. It requests a ping if nothing has arrived since the last check.
func (c *connection) check() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.idle++
	if c.used() {
		c.idle = 0
	}
	c.silent++
	if c.received {
		c.received, c.silent = false, 0
	}
	switch {
	case c.idle >= maxIdle:
		c.endLocked(errIdle)
	case c.silent >= maxSilent:
		c.endLocked(errUnresponsive)
	case c.silent > 0:
		c.pingDue = true
		signal(c.work)
	}
}

// used reports whether there are calls, or commands without a reply.
func (c *connection) used() bool {
	for _, ch := range c.channels {
		if !ch.kept || len(ch.calls) > 0 {
			return true
		}
	}
	return false
}

// end ends the connection and all calls on it, with the first of several reasons.
func (c *connection) end(err error) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.endLocked(err)
}

func (c *connection) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	delete(c.all.byServer, c.server)
	if !errors.Is(err, errIdle) {
		c.all.record(c.server, c.worked, time.Now(), err)
	}
	for _, ch := range c.channels {
		ch.fail(err)
	}
	close(c.ended)
}

// add adds a call. If its channel is subscribed already, it is confirmed at once.
func (c *connection) add(name string) *call {
	ch := c.channels[name]
	if ch == nil {
		ch = &channel{name: name}
		c.channels[name] = ch
	}
	added := &call{connection: c, channel: ch, index: len(ch.calls), ready: make(chan struct{}, 1)}
	ch.calls = append(ch.calls, added)
	if ch.state == subscribed {
		added.deliver("")
	}
	c.update(ch)
	return added
}

// remove removes a call.
func (c *connection) remove(gone *call) {
	ch := gone.channel
	last := len(ch.calls) - 1
	ch.calls[gone.index] = ch.calls[last]
	ch.calls[gone.index].index = gone.index
	ch.calls[last] = nil
	ch.calls = ch.calls[:last]
	c.update(ch)
}

// update queues a channel that has become stale, and drops one that is no longer in use.
func (c *connection) update(ch *channel) {
	switch {
	case ch.stale() && !ch.queued:
		ch.queued = true
		c.changed = append(c.changed, ch)
		signal(c.work)
	case ch.state == absent && len(ch.calls) == 0:
		delete(c.channels, ch.name)
	}
}

// write sends commands until the connection has ended or a command cannot be sent.
func (c *connection) write(conn Conn) error {
	for {
		select {
		case <-c.work:
		case <-c.ended:
			return nil
		}
		ops, ping := c.due()
		if len(ops) > 0 {
			if err := conn.Send(ops); err != nil {
				return err
			}
		}
		if ping {
			if err := conn.Ping(); err != nil {
				return err
			}
		}
	}
}

// due returns the commands to send. A call that came and went meanwhile costs none.
func (c *connection) due() (ops []Op, ping bool) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	for _, ch := range c.changed {
		ch.queued = false
		if ch.stale() {
			ops = append(ops, ch.start())
			c.inFlight = append(c.inFlight, ch)
		}
	}
	c.changed = nil
	ping, c.pingDue = c.pingDue, false
	if ping {
		c.inFlight = append(c.inFlight, nil)
	}
	return ops, ping
}

// read handles events until the connection fails.
func (c *connection) read(conn Conn) error {
	for {
		e, err := conn.Receive()
		if err == nil {
			err = c.handle(e)
		}
		if err != nil {
			return err
		}
	}
}

func (c *connection) handle(e Event) error {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.received, c.worked = true, true
	ch := c.channels[e.Channel]
	switch {
	case e.Kind == Refused:
		return c.refused(e, ch)
	case e.Kind == Pong:
		c.replied(nil)
	case ch == nil: // a message that was under way when the last call ended
	case e.Kind == Message && ch.state == subscribed:
		ch.deliver(e.Text)
	case e.Kind == Subscribed && ch.state == subscribing:
		c.replied(ch)
		ch.state = subscribed
		ch.deliver("")
		c.update(ch)
	case e.Kind == Unsubscribed:
		c.unsubscribed(ch)
	}
	return nil
}

// unsubscribed handles the end of a subscription. If it comes unexpectedly, the slot has
// moved. In the remaining states another reply follows.
func (c *connection) unsubscribed(ch *channel) {
	switch ch.state {
	case unsubscribing:
		c.replied(ch)
	case subscribed:
		ch.fail(errMoved)
	default:
		return
	}
	ch.state = absent
	c.update(ch)
}

// refused handles an error reply. A refused SUBSCRIBE ends the calls on its channel. If
// the user may not UNSUBSCRIBE, the channel is kept while there are calls on others. A
// refused ping shows that the server responds.
func (c *connection) refused(e Event, ch *channel) error {
	if e.Channel == "" && len(c.inFlight) > 0 {
		ch = c.inFlight[0]
		if ch == nil {
			c.replied(nil)
			return nil
		}
	}
	switch {
	case ch != nil && ch.state == subscribing:
		ch.state = absent
		ch.fail(e.Err)
	case ch != nil && ch.state == unsubscribing:
		ch.state, ch.kept = subscribed, true
		ch.deliver("")
	default:
		return e.Err
	}
	c.replied(ch)
	c.update(ch)
	return nil
}

// replied removes a channel from those that wait for a reply, or a ping.
func (c *connection) replied(ch *channel) {
	at := slices.Index(c.inFlight, ch)
	switch {
	case at == 0:
		c.inFlight = c.inFlight[1:]
	case at > 0:
		c.inFlight = slices.Delete(c.inFlight, at, at+1)
	}
}
