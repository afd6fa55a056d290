package zkstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver/bootclock"
	"github.com/go-zookeeper/zk"
)

// A link is a session in ZooKeeper, with the library's connection for it. When the session ends, the
// link ends: the library would begin another session, in which late requests would take effect. It
// is safe for concurrent use.
type link struct {
	zk    *zk.Conn
	clock *bootclock.Clock
	dial  zk.Dialer

	loggedIn chan struct{} // closed when the session was logged in, or refused
	shut     sync.Once
	closed   chan struct{} // closed when the library's work ended

	mu         sync.Mutex
	ready      bool                           // a server serves the session
	ended      bool                           // the session, or the link
	changed    chan struct{}                  // closed when ready or ended change
	refused    error                          // no server accepts the login
	id         int64                          // of the session; zero: not yet known
	lost       time.Duration                  // since when no server serves the session, if it is not ready
	timeout    time.Duration                  // of the session; zero: not yet known
	dialed     time.Duration                  // when the last connection began
	heard      time.Duration                  // when bytes last arrived
	wire       *wire                          // the last connection
	arming     map[watchKey]int               // watches that the next reads should arm
	watches    map[watchKey]chan struct{}     // closed after an event
	departures map[string][]*departure        // by path
	connected  func(dialed, at time.Duration) // is called for each connection
}

// A watchKey is a watch that a server keeps for the session.
type watchKey struct {
	path     string
	children bool
}

// handshakeLimit is how long a server may take to answer to a new connection.
const handshakeLimit = 3 * time.Second

// newLink begins a session with a timeout. It does not wait for a server.
func (c config) newLink(servers []string, clock *bootclock.Clock, timeout time.Duration, connected func(dialed, at time.Duration)) (*link, error) {
	l := &link{clock: clock, dial: c.dial, changed: make(chan struct{}), watches: make(map[watchKey]chan struct{}), departures: make(map[string][]*departure), loggedIn: make(chan struct{}), closed: make(chan struct{}), connected: connected}
	if l.dial == nil {
		l.dial = net.DialTimeout
	}
	began := make(chan struct{}) // the library calls event before Connect returns
	conn, _, err := zk.Connect(servers, timeout, zk.WithDialer(l.open), zk.WithHostProvider(&hosts{}),
		zk.WithLogger(silence{}), zk.WithLogInfo(false), zk.WithEventCallback(func(e zk.Event) { <-began; l.event(e) }))
	if err != nil {
		return nil, err
	}
	l.zk = conn
	close(began)
	go l.logIn(c.auth)
	return l, nil
}

// logIn logs the session in. The library repeats it for each connection.
func (l *link) logIn(logins []login) {
	defer close(l.loggedIn)
	for _, a := range logins {
		for {
			err := l.zk.AddAuth(a.scheme, a.credentials)
			if err == nil {
				break
			}
			if !isBroken(err) || l.hasEnded() {
				l.refuse(fmt.Errorf("log in with the scheme %s: %w", a.scheme, err))
				return
			}
		}
	}
}

// refuse records why all requests fail.
func (l *link) refuse(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = reason
}

// silence drops the library's log lines: failures are returned as errors.
type silence struct{}

func (silence) Printf(string, ...any) {}

// open opens a connection to a server.
func (l *link) open(network, address string, limit time.Duration) (net.Conn, error) {
	at := l.clock.Check()
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	if ended {
		return nil, errEnded
	}
	conn, err := l.dial(network, address, limit)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, handshake: time.Now().Add(handshakeLimit), heard: l.hear}
	w.timeout = l.accept
	w.arms = l.arms
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		_ = conn.Close()
		return nil, errEnded
	}
	l.dialed, l.wire = at, w
	return w, nil
}

// arm lets the next read of a znode arm a watch.
func (l *link) arm(key watchKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arming == nil {
		l.arming = make(map[watchKey]int)
	}
	l.arming[key]++
}

// arms reports whether a read should arm a watch. Of two reads at once, the first one does.
func (l *link) arms(key watchKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.arming[key]
	if n == 0 {
		return false
	}
	if l.arming[key] = n - 1; n == 1 {
		delete(l.arming, key)
	}
	return true
}

// accept records a server's first answer. A session with another ID or timeout is another session, as
// far as leases are concerned, so the link ends. An ID of zero says that the session ended.
func (l *link) accept(id int64, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case id == 0:
	case l.id == 0:
		l.id, l.timeout = id, timeout
	case l.id != id || l.timeout != timeout:
		l.setEnded()
		return errEnded
	}
	return nil
}

// setEnded records the end. The caller holds the lock.
func (l *link) setEnded() {
	if !l.ended {
		l.ended, l.ready = true, false
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *link) hear() {
	at := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = at
}

// event records a change of the session, or of a znode. The library waits for it.
func (l *link) event(e zk.Event) {
	if e.Type != zk.EventSession {
		l.fire(e)
		return
	}
	at := l.clock.Check()
	l.mu.Lock()
	ready, dialed := e.State == zk.StateHasSession, l.dialed
	switch {
	case l.ended:
	case e.State == zk.StateExpired || e.State == zk.StateAuthFailed:
		l.setEnded()
	case ready != l.ready:
		l.ready, l.lost = ready, at
		close(l.changed)
		l.changed = make(chan struct{})
	}
	ended := l.ended
	if ready {
		l.fireAll()
	}
	l.departAll()
	l.mu.Unlock()
	switch {
	case ended:
		l.drop()
	case ready:
		l.connected(dialed, at)
	}
}

// fireAll ends all watches: the server of a new connection does not know them. The caller holds the
// lock.
func (l *link) fireAll() {
	for key, fired := range l.watches {
		close(fired)
		delete(l.watches, key)
	}
}

// fire ends the watches that an event is about.
func (l *link) fire(e zk.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Type == zk.EventNodeDeleted && l.wire != nil:
		l.depart(e.Path, max(l.wire.events.zxid, 0))
	case e.Type != zk.EventNodeChildrenChanged:
		l.depart(e.Path, 0)
	}
	for _, key := range []watchKey{{e.Path, false}, {e.Path, true}} {
		if key.children != (e.Type == zk.EventNodeChildrenChanged) && e.Type != zk.EventNodeDeleted && e.Type != zk.EventNotWatching {
			continue
		}
		if fired := l.watches[key]; fired != nil {
			close(fired)
			delete(l.watches, key)
		}
	}
}

// hasEnded reports whether the session or the link ended.
func (l *link) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// hasID reports whether the session has an ID.
func (l *link) hasID(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id == id
}

// state returns whether a server serves the session, and a channel that is closed when this changes.
func (l *link) state() (ready, ended bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ready, l.ended, l.changed
}

// await waits until a server serves the session. A link without a server for longer than its timeout
// ends: the session ended, although no server says so. After a restore, for example, all servers
// refuse the session.
func (l *link) await(ctx context.Context) error {
	for {
		ready, ended, changed := l.state()
		switch {
		case ended:
			return errEnded
		case ready:
			return l.awaitLogin(ctx)
		case l.isForgotten():
			l.drop()
			return errEnded
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return unsentError{noServer(ctx)}
		}
	}
}

// isForgotten reports whether no server serves the session for longer than its timeout.
func (l *link) isForgotten() bool {
	at := l.clock.Check()
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ready && l.id != 0 && at-l.lost > 2*l.timeout
}

// awaitLogin waits until the session was logged in.
func (l *link) awaitLogin(ctx context.Context) error {
	select {
	case <-l.loggedIn:
	case <-ctx.Done():
		return unsentError{context.Cause(ctx)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// errNoServer means that no server accepts the session.
var errNoServer = errors.New("no ZooKeeper server answers")

// noServer returns the error of a call that waited for a server until ctx ended.
func noServer(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errNoServer, context.Cause(ctx))
}

// close ends the session, and its entries.
func (l *link) close() {
	l.end()
	l.endLibrary()
	<-l.closed
}

// endLibrary ends the library's work. It does not wait.
func (l *link) endLibrary() {
	l.shut.Do(func() {
		go func() {
			defer close(l.closed)
			l.zk.Close()
		}()
	})
}

// disconnect ends the connection, but not the session: its entries last until its timeout.
func (l *link) disconnect() {
	l.end()
	l.drop()
}

// end makes the link unusable.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setEnded()
	l.departAll()
	l.fireAll()
}

// drop closes the connection, and ends the library's work. The caller need not wait.
func (l *link) drop() {
	l.end()
	l.mu.Lock()
	w := l.wire
	l.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
	l.endLibrary()
}

// connection returns the last connection.
func (l *link) connection() *wire {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wire
}

// reconnect closes a connection on which nothing arrived since a time. The library then connects with
// another server.
func (l *link) reconnect(since time.Duration) {
	l.mu.Lock()
	w, silent := l.wire, l.heard < since && l.dialed < since
	l.mu.Unlock()
	if silent && w != nil {
		_ = w.Close()
	}
}

// call sends a request, and waits for its answer until ctx ends. The library has no contexts: the
// request may still be sent later. A server that does not answer is replaced.
func call[R any](ctx context.Context, l *link, send func(*zk.Conn) (R, error)) (R, error) {
	reply, _, err := callLate(ctx, l, send)
	return reply, err
}

// callLate is call. If the answer is late, it also returns a channel that is closed when it came.
func callLate[R any](ctx context.Context, l *link, send func(*zk.Conn) (R, error)) (reply R, late <-chan struct{}, err error) {
	if err := l.await(ctx); err != nil {
		return reply, nil, err
	}
	type answer struct {
		reply R
		err   error
	}
	sent := l.clock.Check()
	answered, done := make(chan answer, 1), make(chan struct{})
	go func() {
		defer close(done)
		reply, err := send(l.zk)
		if l.hasEnded() && err == nil { // perhaps in another session
			err = errEnded
		}
		answered <- answer{reply, err}
	}()
	select {
	case a := <-answered:
		if errors.Is(a.err, zk.ErrSessionExpired) {
			a.err = errEnded
		}
		return a.reply, nil, a.err
	case <-ctx.Done():
		l.reconnect(sent)
		return reply, done, context.Cause(ctx)
	}
}

// children reads the children of a znode, and the zxid of the last change among them. If watch is
// set, it also returns a channel that is closed after the next change.
func (l *link) children(ctx context.Context, path string, watch bool) (names []string, pzxid int64, fired <-chan struct{}, err error) {
	type reply struct {
		names []string
		stat  *zk.Stat
	}
	key := watchKey{path, true}
	if watch {
		fired, _ = l.watch(key)
		l.arm(key)
	}
	r, err := call(ctx, l, func(c *zk.Conn) (r reply, err error) {
		r.names, r.stat, err = c.Children(path)
		return r, err
	})
	if err != nil {
		if watch {
			l.unwatch(key, fired)
		}
		return nil, 0, nil, err
	}
	return r.names, r.stat.Pzxid, fired, nil
}

// gone watches a znode. It returns a channel that is closed after the next change, and whether the
// znode exists.
func (l *link) gone(ctx context.Context, path string) (fired <-chan struct{}, exists bool, err error) {
	key := watchKey{path, false}
	fired, arm := l.watch(key)
	if !arm {
		return fired, true, nil // it existed, and no event came since
	}
	if exists, err = l.armData(ctx, path); err != nil || !exists {
		l.unwatch(key, fired)
	}
	return fired, exists, err
}

// armData arms a watch of a znode. It returns false if the znode does not exist.
func (l *link) armData(ctx context.Context, path string) (exists bool, err error) {
	l.arm(watchKey{path, false})
	_, _, err = l.get(ctx, path)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, err
}

// watch returns the channel of a watch, and whether a request should arm it.
func (l *link) watch(key watchKey) (fired chan struct{}, arm bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fired := l.watches[key]; fired != nil {
		return fired, false
	}
	fired = make(chan struct{})
	if l.ended {
		close(fired)
		return fired, true
	}
	l.watches[key] = fired
	return fired, true
}

// unwatch ends a watch that was not armed.
func (l *link) unwatch(key watchKey, fired <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.watches[key]; now == fired {
		close(now)
		delete(l.watches, key)
	}
}

// get reads a znode.
func (l *link) get(ctx context.Context, path string) (data []byte, stat *zk.Stat, err error) {
	type reply struct {
		data []byte
		stat *zk.Stat
	}
	r, err := call(ctx, l, func(c *zk.Conn) (reply, error) {
		data, stat, err := c.Get(path)
		return reply{data, stat}, err
	})
	return r.data, r.stat, err
}

// set writes a znode.
func (l *link) set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	return call(ctx, l, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(path, data, version) })
}

// remove deletes a znode. It returns false if there is none.
func (l *link) remove(ctx context.Context, path string, version int32) (bool, error) {
	err := errOf(call(ctx, l, func(c *zk.Conn) (any, error) { return nil, c.Delete(path, version) }))
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	return err == nil, err
}

func errOf(_ any, err error) error { return err }

// multi sends several changes, which take effect together or not at all.
func (l *link) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return call(ctx, l, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		replies, err := c.Multi(ops...)
		if err == nil {
			return replies, nil
		}
		for _, r := range replies { // that of the change which failed
			if r.Error != nil && isRefusal(r.Error) {
				return replies, r.Error
			}
		}
		return replies, err
	})
}

// sync waits until the server knows all changes that were answered before.
func (l *link) sync(ctx context.Context, path string) error {
	return errOf(call(ctx, l, func(c *zk.Conn) (string, error) { return c.Sync(path) }))
}

// makePath creates a znode and those above it, unless they exist.
func (l *link) makePath(ctx context.Context, path string, acl []zk.ACL, container bool) error {
	create := func(c *zk.Conn) (string, error) {
		if container {
			return c.CreateContainer(path, nil, zk.FlagContainer, acl)
		}
		return c.Create(path, nil, 0, acl)
	}
	for { // the znode above can end at any moment
		err := errOf(call(ctx, l, create))
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		above := path[:strings.LastIndexByte(path, '/')]
		if !errors.Is(err, zk.ErrNoNode) || above == "" {
			return err
		}
		if err := l.makePath(ctx, above, acl, false); err != nil {
			return err
		}
	}
}
