package mysqlstore

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/sqlstore"
)

// A client's pace for fetching its notifications, with any number of waiters.
const (
	fetchFirst   = 5 * time.Millisecond   // after an event
	fetchWaiting = 50 * time.Millisecond  // at least, while the client waits
	fetchAsked   = 250 * time.Millisecond // while a holder asked to be notified of waiters
	fetchIdle    = time.Second            // otherwise: only a revocation can arrive
)

// askedFor is how long a client fetches more often after a NotifyWanted, which each renewal
// repeats.
const askedFor = time.Minute

// Watch implements driver.Store. It fetches the client's messages.
func (s *Store) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	if err := s.check(); err != nil {
		return err
	}
	f := s.fetches.open(client)
	defer s.fetches.close(client, f)
	seen := make(map[int64]bool) // delivered, and not yet deleted
	connected, every := false, fetchFirst
	backoff := sqlstore.NewBackoff(fetchWaiting, time.Second, 2)
	for {
		messages, err := s.fetch(ctx, client, seen)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && connected:
			connected = false
			on(driver.Event{Kind: driver.EventDisconnected, Err: err})
		case err == nil && !connected:
			connected = true
			on(driver.Event{Kind: driver.EventConnected})
		}
		for _, m := range messages {
			if e, ok := sqlstore.ParseEvent(m, s.db.Limit.Clock.Age); ok {
				on(e)
			}
		}
		every = min(2*every, fetchWaiting)
		if len(messages) > 0 {
			every = fetchFirst
		}
		if err != nil && !repeatable(err) {
			if !pause(ctx, backoff.Next(time.Now())) {
				return context.Cause(ctx)
			}
			continue
		}
		backoff.Reset()
		if !f.wait(ctx, &every) {
			return context.Cause(ctx)
		}
	}
}

// pause waits, or returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// fetch returns a client's messages not seen before, and deletes them.
func (s *Store) fetch(ctx context.Context, client string, seen map[int64]bool) (messages []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, driver.OperationTimeout)
	defer cancel()
	ids, texts, err := s.messages(ctx, client)
	if err != nil || len(ids) == 0 {
		clear(seen)
		return nil, err
	}
	for i, id := range ids {
		if !seen[id.(int64)] {
			messages = append(messages, texts[i])
		}
		seen[id.(int64)] = true
	}
	err = s.useSoon(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, s.text.deleteMessages+"("+strings.Repeat("?,", len(ids)-1)+"?)", ids...)
		return err
	})
	switch {
	case repeatable(err): // the next fetch deletes them
	case err != nil:
		return messages, unavailable("watch", "", err)
	default:
		clear(seen)
	}
	return messages, nil
}

// messages returns a client's next messages.
func (s *Store) messages(ctx context.Context, client string) (ids []any, texts []string, err error) {
	var id int64
	var text string
	err = s.db.Each(ctx, true, s.text.messages, []any{[]byte(client)}, []any{&id, &text}, func() {
		ids, texts = append(ids, id), append(texts, text)
	})
	if err != nil {
		return nil, nil, unavailable("watch", "", err)
	}
	return ids, texts, nil
}

// fetches contains this process's clients that fetch messages. It is safe for concurrent use.
type fetches struct {
	mu      sync.Mutex
	clients map[string]*fetching
}

// A fetching is a client's pace.
type fetching struct {
	now chan struct{} // contains an element if the client should fetch at once

	mu    sync.Mutex
	until time.Time // until then, the client waits
	asked time.Time // until then, a holder can be notified of waiters
}

func (f *fetches) open(client string) *fetching {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients == nil {
		f.clients = make(map[string]*fetching)
	}
	c := &fetching{now: make(chan struct{}, 1)}
	f.clients[client] = c
	return c
}

func (f *fetches) close(client string, c *fetching) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clients[client] == c {
		delete(f.clients, client)
	}
}

// waits records a client's waiter, until its heartbeat is missing.
func (f *fetches) waits(client string) {
	if c := f.of(client); c != nil && c.extend(&c.until, driver.WaiterTTL) {
		c.wake()
	}
}

// asks records that a client's holder can be notified of waiters.
func (f *fetches) asks(client string) {
	if c := f.of(client); c != nil && c.extend(&c.asked, askedFor) {
		c.wake()
	}
}

func (f *fetches) of(client string) *fetching {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clients[client]
}

// changed makes the clients with waiters fetch at once: this process may have granted a waiter's
// request.
func (f *fetches) changed() {
	f.wakeIf(func(c *fetching) bool { return c.has(&c.until) })
}

// queued makes the clients whose holders asked fetch at once: this process queued a name's
// first waiter.
func (f *fetches) queued() {
	f.wakeIf(func(c *fetching) bool { return c.has(&c.asked) })
}

func (f *fetches) wakeIf(expects func(*fetching) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		if expects(c) {
			c.wake()
		}
	}
}

// extend sets a limit for the client, and reports whether it had passed.
func (c *fetching) extend(limit *time.Time, d time.Duration) (passed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	passed = !limit.After(now)
	*limit = now.Add(d)
	return passed
}

// has reports whether a client's limit is still in the future.
func (c *fetching) has(limit *time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return limit.After(time.Now())
}

func (c *fetching) wake() {
	select {
	case c.now <- struct{}{}:
	default:
	}
}

// wait waits until the next fetch. It returns false if ctx ended.
func (c *fetching) wait(ctx context.Context, every *time.Duration) bool {
	pause := *every
	switch {
	case c.has(&c.until):
	case c.has(&c.asked):
		pause = fetchAsked
	default:
		pause = fetchIdle
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.now:
		*every = fetchFirst
	case <-ctx.Done():
		return false
	}
	return true
}
