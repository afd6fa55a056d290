package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	patience = time.Second            // after it, a connection that does not open or answer loses its place
	openTime = 10 * time.Second       // the longest time to open a connection; several round trips in a slow network
	pause    = 100 * time.Millisecond // after a connection was refused while others work
	idleTime = 30 * time.Second       // after it, an idle connection is closed
)

// Conns are a store's own connections, so other work in the program cannot delay its requests. They
// are opened on demand, and closed after they are idle for a while. No goroutine runs between
// requests. Conns are safe for concurrent use.
//
// The number of connections is limited. An additional connection is for urgent requests. A
// connection that became silent keeps its place only for a moment: meanwhile another is opened each
// second.
type Conns[C comparable] struct {
	open  func(ctx context.Context) (C, error)
	shut  func(C) // closes a connection; it may take long
	ended func(C) bool
	most  int

	mu       sync.Mutex
	idle     []resting[C]       // the last used is the last
	busy     map[*trip]struct{} // opening, or used by a request
	waiting  []*visitor[C]      // urgent ones first
	opened   time.Time          // the last beginning of an opening
	refused  time.Time          // the last failed opening while other connections worked
	answered time.Time          // the last time a working connection was returned
	timer    *time.Timer        // closes idle connections
}

// A resting connection is idle.
type resting[C any] struct {
	conn  C
	since time.Time
}

// A trip opens a connection, or uses it for a request.
type trip struct {
	began time.Time
	opens bool
}

// A visitor is a request waiting for a connection.
type visitor[C any] struct {
	urgent bool
	got    chan taken[C] // contains an element when the wait is over
}

// A taken connection, or the reason why there is none.
type taken[C any] struct {
	conn C
	on   *trip
	err  error
}

// NewConns returns at most this many connections. It opens connections with the function open, and
// closes them with the function shut. ended reports whether a connection can no longer be used.
func NewConns[C comparable](most int, open func(ctx context.Context) (C, error), ended func(C) bool, shut func(C)) *Conns[C] {
	return &Conns[C]{open: open, shut: shut, ended: ended, most: most, busy: make(map[*trip]struct{})}
}

// Use calls do with a connection. If there is none before ctx ends, the error is an *UnsentError.
func (c *Conns[C]) Use(ctx context.Context, urgent bool, do func(C) error) error {
	got := c.await(ctx, urgent)
	if got.err != nil {
		return got.err
	}
	defer c.give(got.conn, got.on)
	return do(got.conn)
}

// await returns a connection for a request.
func (c *Conns[C]) await(ctx context.Context, urgent bool) taken[C] {
	if ctx.Err() != nil {
		return taken[C]{err: InFront(ctx.Err())}
	}
	v := c.enter(urgent)
	if len(v.got) > 0 {
		return <-v.got // most requests: without a timer
	}
	again := time.NewTicker(patience)
	defer again.Stop()
	for {
		select {
		case got := <-v.got:
			return got
		case <-again.C:
			c.again()
		case <-ctx.Done():
			return c.leave(v, ctx.Err())
		}
	}
}

// enter adds a visitor.
func (c *Conns[C]) enter(urgent bool) *visitor[C] {
	v := &visitor[C]{urgent: urgent, got: make(chan taken[C], 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := len(c.waiting)
	if urgent {
		at = 0
		for at < len(c.waiting) && c.waiting[at].urgent {
			at++
		}
	}
	c.waiting = slices.Insert(c.waiting, at, v)
	c.serve()
	return v
}

// leave removes a visitor whose time is over.
func (c *Conns[C]) leave(v *visitor[C], err error) taken[C] {
	c.mu.Lock()
	i := slices.Index(c.waiting, v)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	works := time.Since(c.answered) < patience
	c.mu.Unlock()
	if i < 0 {
		return <-v.got // it was served at the same moment
	}
	unsent := &UnsentError{cause: err}
	if err == context.DeadlineExceeded { //nolint:errorlint // a context's error
		unsent.cause = fmt.Errorf("not sent: no connection was ready in time: %w", err)
		unsent.local = works // others were in front
	}
	return taken[C]{err: unsent}
}

// serve gives idle connections to visitors, and opens others for the remaining visitors.
func (c *Conns[C]) serve() {
	if len(c.waiting) == 0 {
		return
	}
	now := time.Now()
	for len(c.idle) > 0 && len(c.waiting) > 0 && c.lively(now) < c.room(c.waiting[0]) {
		last := len(c.idle) - 1
		conn := c.idle[last].conn
		c.idle = c.idle[:last]
		if c.ended(conn) {
			go c.shut(conn)
			continue
		}
		c.waiting[0].got <- taken[C]{conn: conn, on: c.begin(trip{began: now})}
		c.waiting = c.waiting[1:]
	}
	for i := c.opening(now); i < len(c.waiting) && c.mayOpen(now, c.waiting[i]); i++ {
		c.opened = now
		go c.add(c.begin(trip{began: now, opens: true}))
	}
}

// room returns how many connections there may be for a visitor.
func (c *Conns[C]) room(v *visitor[C]) int {
	if v.urgent {
		return c.most + 1
	}
	return c.most
}

// mayOpen reports whether a connection may be opened for a visitor.
func (c *Conns[C]) mayOpen(now time.Time, v *visitor[C]) bool {
	room, all := c.room(v), len(c.busy)+len(c.idle)
	switch {
	case now.Sub(c.refused) < pause:
		return false
	case all < room:
		return true
	}
	const silent = 4 // times as many may be silent
	return c.lively(now)+len(c.idle) < room && all < (1+silent)*room && now.Sub(c.opened) >= patience
}

// lively returns how many connections have a place: silent ones have none.
func (c *Conns[C]) lively(now time.Time) (n int) {
	for t := range c.busy {
		if now.Sub(t.began) < patience {
			n++
		}
	}
	return n
}

// opening returns how many connections have just begun to open.
func (c *Conns[C]) opening(now time.Time) (n int) {
	for t := range c.busy {
		if t.opens && now.Sub(t.began) < patience {
			n++
		}
	}
	return n
}

func (c *Conns[C]) begin(t trip) *trip {
	c.busy[&t] = struct{}{}
	return &t
}

// add opens a connection.
func (c *Conns[C]) add(on *trip) {
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	conn, err := c.open(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, on)
	now := time.Now()
	switch {
	case err == nil:
		c.opened = time.Time{} // the network works
		c.rest(conn)
	case now.Sub(on.began) >= patience && len(c.waiting) > 0 && c.mayOpen(now, c.waiting[0]): // the network may be back by now
	case c.lively(now)+len(c.idle) == 0: // no other connection will be free soon
		for _, v := range c.waiting {
			v.got <- taken[C]{err: &UnsentError{cause: err}}
		}
		c.waiting = nil
	default:
		c.refused = now
		time.AfterFunc(pause, c.again)
	}
	c.serve()
}

func (c *Conns[C]) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serve()
}

// give takes a connection back.
func (c *Conns[C]) give(conn C, on *trip) {
	ended := c.ended(conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, on)
	if ended {
		go c.shut(conn)
	} else {
		c.answered = time.Now()
		c.rest(conn)
	}
	c.serve()
}

// rest makes a connection idle.
func (c *Conns[C]) rest(conn C) {
	c.idle = append(c.idle, resting[C]{conn, time.Now()})
	if c.timer == nil {
		c.timer = time.AfterFunc(idleTime, c.sweep)
	}
}

// sweep closes the connections idle for long.
func (c *Conns[C]) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, kept := time.Now(), c.idle[:0]
	for _, r := range c.idle {
		if now.Sub(r.since) >= idleTime {
			go c.shut(r.conn)
			continue
		}
		kept = append(kept, r)
	}
	c.idle, c.timer = kept, nil
	if len(kept) > 0 {
		c.timer = time.AfterFunc(idleTime-now.Sub(kept[0].since), c.sweep)
	}
}

// Close closes the idle connections.
func (c *Conns[C]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.idle {
		go c.shut(r.conn)
	}
	c.idle = nil
}
