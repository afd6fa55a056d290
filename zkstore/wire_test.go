package zkstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// A wire is the network between a store and its servers: its method dial is for the option Dial.
// Requests and replies can be lost, late, or wait.
type wire struct {
	mu     sync.Mutex
	links  map[*link]bool
	cut    chan struct{}                    // closed when the servers can be reached again; nil if they can
	route  func(address string) (to string) // refuses a connection with ""; nil: to the address
	fault  fault
	match  func(op int32, request []byte) bool // the requests that the fault concerns; nil: none
	skip   int                                 // how many of them the fault leaves alone
	struck chan struct{}                       // closed by the fault; nil if there is none
}

// A fault is what happens to a request.
type fault int

const (
	replyLost   fault = iota // the server gets it, but the connection ends before its reply
	replyMuted               // the server gets it, but nothing comes back on this connection
	requestLost              // the connection ends before the server gets it
	requestLate              // it waits, with later requests on its connection, until deliver
)

// newWire returns a wire without faults. They end with the test.
func newWire(t *testing.T) *wire {
	w := &wire{links: make(map[*link]bool)}
	t.Cleanup(func() {
		w.heal()
		w.reset()
		w.deliver()
	})
	return w
}

var errRefused = errors.New("the connection is refused")

// dial is a dialer of ZooKeeper's library.
func (w *wire) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	w.mu.Lock()
	cut := w.cut
	if w.route != nil {
		address = w.route(address)
	}
	w.mu.Unlock()
	if address == "" {
		return nil, errRefused
	}
	if cut != nil {
		select {
		case <-cut:
		case <-time.After(timeout):
			return nil, errRefused
		}
	}
	server, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	l := &link{wire: w, client: far, server: server, late: make(chan struct{}), requests: make(chan []byte, 10_000)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[l] = true
	go l.receive()
	go l.send()
	go l.reply()
	return near, nil
}

// isolate delays all bytes on all connections until heal, in both directions.
func (w *wire) isolate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut == nil {
		w.cut = make(chan struct{})
	}
}

// heal ends isolate, and no fault is left for later requests.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut != nil {
		close(w.cut)
	}
	w.cut, w.match = nil, nil
}

// wait waits until the servers can be reached.
func (w *wire) wait() {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut != nil {
		<-cut
	}
}

// reset ends all connections. A delayed request still arrives, after deliver.
func (w *wire) reset() {
	for _, l := range w.all() {
		l.end()
	}
}

// deliver sends delayed requests.
func (w *wire) deliver() {
	for _, l := range w.all() {
		l.deliver()
	}
}

func (w *wire) all() (links []*link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		links = append(links, l)
	}
	return links
}

// redirect lets later connections go to another address.
func (w *wire) redirect(route func(address string) string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.route = route
}

// strike lets a fault happen to the next request that matches, after some others that do. The
// channel is closed when it has happened.
func (w *wire) strike(f fault, match func(op int32, request []byte) bool, skip int) (struck <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.match, w.skip, w.struck = f, match, skip, make(chan struct{})
	return w.struck
}

// strikes reports whether the fault happens to a request.
func (w *wire) strikes(op int32, request []byte) (f fault, now bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.match == nil || !w.match(op, request) {
		return 0, false
	}
	if w.skip > 0 {
		w.skip--
		return 0, false
	}
	w.match = nil
	close(w.struck)
	return w.fault, true
}

// Requests that change something.
const (
	opCreate          = 1
	opDelete          = 2
	opSetData         = 5
	opMulti           = 14
	opCreate2         = 15
	opCreateContainer = 19
)

// writes matches the requests that change something below a path.
func writes(path string) func(op int32, request []byte) bool {
	return func(op int32, request []byte) bool {
		switch op {
		case opCreate, opDelete, opSetData, opMulti, opCreate2, opCreateContainer:
			return bytes.Contains(request, []byte(path))
		}
		return false
	}
}

// concerns matches all requests about a path.
func concerns(path string) func(op int32, request []byte) bool {
	return func(_ int32, request []byte) bool { return bytes.Contains(request, []byte(path)) }
}

// A link is a connection through a wire.
type link struct {
	wire           *wire
	client, server net.Conn
	requests       chan []byte // for the server; closed when the client closes the connection

	mu         sync.Mutex
	late       chan struct{} // closed by deliver
	delayed    bool          // requests wait for late
	silent     bool          // nothing comes back any more
	lastReply  int32         // the connection ends instead of the reply to this request
	losesReply bool
	over       bool // the connection ended, but delayed requests may still arrive
}

// receive reads the client's requests. It also reads while these cannot be sent: then a real network
// keeps them.
func (l *link) receive() {
	defer close(l.requests)
	for first := true; ; first = false {
		frame, err := readFrame(l.client)
		if err != nil {
			return
		}
		if !first && !l.pass(frame) {
			l.end()
			return
		}
		l.requests <- frame
	}
}

// pass lets the fault happen, and reports whether the server gets the request.
func (l *link) pass(frame []byte) bool {
	const header = 4 + 8
	if len(frame) < header {
		return true
	}
	id, op := int32(binary.BigEndian.Uint32(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
	f, now := l.wire.strikes(op, frame)
	if !now {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f {
	case replyLost:
		l.lastReply, l.losesReply = id, true
	case replyMuted:
		l.silent = true
	case requestLate:
		l.delayed, l.silent = true, true
	case requestLost:
		return false
	}
	return true
}

// send sends requests to the server.
func (l *link) send() {
	defer l.forget()
	for frame := range l.requests {
		l.wire.wait()
		l.mu.Lock()
		delayed, over := l.delayed, l.over
		l.mu.Unlock()
		if delayed {
			<-l.late
		} else if over {
			return
		}
		if _, err := l.server.Write(frame); err != nil {
			return
		}
	}
}

// reply forwards what the server sends. It ends with the connection.
func (l *link) reply() {
	defer l.server.Close()
	defer l.client.Close()
	for first := true; ; first = false {
		frame, err := readFrame(l.server)
		if err != nil {
			return
		}
		l.wire.wait()
		l.mu.Lock()
		silent, last := l.silent, l.losesReply && !first && int32(binary.BigEndian.Uint32(frame[4:])) == l.lastReply
		l.mu.Unlock()
		switch {
		case last:
			l.end()
			return
		case silent:
			continue
		}
		if _, err := l.client.Write(frame); err != nil {
			return
		}
	}
}

// end ends the connection for the client, and, unless it has delayed requests, for the server.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.client.Close()
	if !l.delayed {
		l.server.Close()
	}
}

func (l *link) deliver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delayed {
		l.delayed = false
		close(l.late)
	}
}

// forget ends the connection after the last request: the server still reads that.
func (l *link) forget() {
	l.client.Close()
	_ = l.server.(*net.TCPConn).CloseWrite()
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	delete(l.wire.links, l)
}

// readFrame reads a request or a reply with its length.
func readFrame(from io.Reader) ([]byte, error) {
	const most = 10 << 20
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > most {
		return nil, errors.New("the frame is too large")
	}
	frame := make([]byte, len(length)+int(size))
	copy(frame, length[:])
	_, err := io.ReadFull(from, frame[len(length):])
	return frame, err
}

// disturb injects a fault for a while.
func (w *wire) disturb(prefix string, sleep func(time.Duration)) {
	const most = 800 * time.Millisecond
	switch rand.IntN(6) {
	case 0:
		w.strike(replyLost, concerns(prefix), 0)
	case 1:
		w.strike(replyMuted, concerns(prefix), 0)
	case 2:
		w.strike(requestLost, concerns(prefix), 0)
	case 3:
		w.strike(requestLate, concerns(prefix), 0)
	case 4:
		w.isolate()
	case 5:
		w.reset()
	}
	sleep(rand.N(most))
	w.reset() // a client notices a silent connection late
	w.heal()
	w.deliver()
	sleep(rand.N(most / 4))
}

// The faults of the tests themselves should have their effect.
func TestWire(t *testing.T) {
	t.Parallel()
	server, prefix := sharedServer(t), newPrefix()
	direct := connect(t, server)
	w := newWire(t)
	conn, events, err := zk.Connect(endpoints(server), 3*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithDialer(w.dial))
	must(t, err)
	go func() {
		for range events { // it would be full
		}
	}()
	t.Cleanup(conn.Close)
	exists := func(znode string) bool {
		t.Helper()
		ok, _, err := direct.Exists(znode)
		must(t, err)
		return ok
	}
	add := func(znode string) error { _, err := conn.Create(znode, nil, 0, everybody); return err }
	must(t, add(prefix))
	for what, c := range map[string]struct {
		fault   fault
		arrives bool
	}{"reply-lost": {replyLost, true}, "reply-muted": {replyMuted, true}, "request-lost": {requestLost, false}, "request-late": {requestLate, false}} {
		znode := prefix + "/" + what
		struck := w.strike(c.fault, writes(znode), 0)
		if err := add(znode); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("%s: %v", what, err)
		}
		<-struck
		if exists(znode) != c.arrives {
			t.Errorf("%s: the znode exists: %v", what, !c.arrives)
		}
		eventually(t, 10*time.Second, func() error { return add(znode + "-again") })
	}
	begin := time.Now()
	w.isolate()
	if err := add(prefix + "/isolated"); err == nil || exists(prefix+"/isolated") {
		t.Errorf("while isolated: %v", err)
	}
	t.Logf("the client noticed after %v", time.Since(begin))
	w.heal()
	eventually(t, 10*time.Second, func() error { return add(prefix + "/healed") })
}
