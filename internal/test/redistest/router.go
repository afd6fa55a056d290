package redistest

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dibslock/dibs/redisstore/redisconn"
)

// Routing is a Router's rule for choosing a command's server.
type Routing int

const (
	// ByKey routes by the whole first key, as twemproxy and Envoy do without a setting.
	ByKey Routing = iota
	// ByTag routes by the first key's hash tag, as Codis does. Further keys do not matter.
	ByTag
	// BySlot routes by cluster slot, and rejects keys in different slots, as a single address in
	// front of a cluster does. Commands without a key reach the first server.
	BySlot
)

// A Router is a proxy in front of several servers. It sends each command to one server. Except
// BySlot, it refuses commands without a key, as such proxies do. It always refuses subscriptions. A
// Proxy, in contrast, has a single server, and can inject faults.
type Router struct {
	routing  Routing
	servers  []*Server
	listener net.Listener
	running  sync.WaitGroup
	mixed    atomic.Int64

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

// NewRouter starts a router and closes it with the test.
func NewRouter(t testing.TB, routing Routing, servers ...*Server) *Router {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Router{routing: routing, servers: servers, listener: listener, open: make(map[net.Conn]struct{})}
	r.running.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// Mixed returns how many scripts had keys with different hash tags.
func (r *Router) Mixed() int64 { return r.mixed.Load() }

// Addr returns the host:port for clients.
func (r *Router) Addr() string { return r.listener.Addr().String() }

func (r *Router) close() {
	r.mu.Lock()
	r.closed = true
	for conn := range r.open {
		conn.Close()
	}
	r.mu.Unlock()
	r.listener.Close()
	r.running.Wait()
}

func (r *Router) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.serve(conn) })
	}
}

// register makes close responsible for a connection. It reports false after close.
func (r *Router) register(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		conn.Close()
		return false
	}
	r.open[conn] = struct{}{}
	return true
}

func (r *Router) drop(conn net.Conn) {
	r.mu.Lock()
	delete(r.open, conn)
	r.mu.Unlock()
	conn.Close()
}

// serve answers a client's commands in order, with one connection to each server.
func (r *Router) serve(client net.Conn) {
	if !r.register(client) {
		return
	}
	defer r.drop(client)
	behind := make([]*wire, len(r.servers))
	defer func() {
		for _, w := range behind {
			if w != nil {
				r.drop(w.conn)
			}
		}
	}()
	in := bufio.NewReaderSize(client, maxLine)
	for {
		value, err := readReply(in)
		if err != nil {
			return
		}
		reply, err := r.forward(behind, words(value))
		if err != nil {
			return
		}
		if _, err := client.Write(appendReply(nil, reply)); err != nil {
			return
		}
	}
}

// words returns a command's words.
func words(value any) (cmd []string) {
	list, _ := value.([]any)
	for _, item := range list {
		text, _ := item.(string)
		cmd = append(cmd, text)
	}
	return cmd
}

// forward sends a command to its server and returns the reply, or the router's own.
func (r *Router) forward(behind []*wire, cmd []string) (any, error) {
	at, refusal := r.choose(cmd)
	if refusal != "" {
		return redisconn.ServerError(refusal), nil
	}
	if behind[at] == nil {
		conn, err := net.DialTimeout("tcp", r.servers[at].Addr(), ioTimeout)
		if err != nil || !r.register(conn) {
			return nil, fmt.Errorf("server %d: %w", at, err)
		}
		behind[at] = &wire{conn: conn, r: bufio.NewReaderSize(conn, maxLine)}
	}
	request, err := appendCommand(nil, cmd)
	if err != nil {
		return nil, err
	}
	if _, err := behind[at].conn.Write(request); err != nil {
		return nil, err
	}
	return readReply(behind[at].r)
}

// withoutKey lists commands without a key to route them.
var withoutKey = []string{"ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "HELLO", "INFO", "KEYS", "PING", "PUBLISH", "PUBSUB", "SCAN", "SCRIPT", "SELECT", "TIME", "WAIT"}

// choose returns a command's server, or the reason for refusing the command.
func (r *Router) choose(cmd []string) (at int, refusal string) {
	if len(cmd) == 0 {
		return 0, "ERR empty command"
	}
	name := strings.ToUpper(cmd[0])
	keys := cmd[1:min(2, len(cmd))]
	switch {
	case strings.HasSuffix(name, "SUBSCRIBE"):
		return 0, fmt.Sprintf("ERR unknown command '%s'", cmd[0])
	case slices.Contains(withoutKey, name) && r.routing == BySlot:
		return 0, ""
	case slices.Contains(withoutKey, name):
		return 0, fmt.Sprintf("ERR command '%s' is not allowed", cmd[0])
	case strings.HasPrefix(name, "EVAL"):
		keys = scriptKeys(cmd)
	}
	if len(keys) == 0 {
		return 0, "ERR no key to route by"
	}
	if slices.ContainsFunc(keys, func(key string) bool { return hashTag(key) != hashTag(keys[0]) }) {
		r.mixed.Add(1)
	}
	for _, key := range keys {
		if r.routing == BySlot && Slot(key) != Slot(keys[0]) {
			return 0, "CROSSSLOT Keys in request don't hash to the same slot"
		}
	}
	return r.serverOf(keys[0]), ""
}

func scriptKeys(cmd []string) []string {
	const first = 3
	if len(cmd) < first {
		return nil
	}
	n, err := strconv.Atoi(cmd[2])
	if err != nil || n < 0 || n > len(cmd)-first {
		return nil
	}
	return cmd[first : first+n]
}

func (r *Router) serverOf(key string) int {
	switch r.routing {
	case BySlot:
		return Slot(key) * len(r.servers) / slots
	case ByTag:
		key = hashTag(key)
	case ByKey:
	}
	const codisSlots = 1024
	return int(crc32.ChecksumIEEE([]byte(key))%codisSlots) * len(r.servers) / codisSlots
}

// appendReply encodes a reply as readReply returns it.
func appendReply(b []byte, value any) []byte {
	switch v := value.(type) {
	case int64:
		b = append(strconv.AppendInt(append(b, ':'), v, 10), "\r\n"...)
	case string:
		b = append(append(appendHeader(b, '$', len(v)), v...), "\r\n"...)
	case redisconn.ServerError:
		b = append(append(append(b, '-'), v...), "\r\n"...)
	case []any:
		b = appendHeader(b, '*', len(v))
		for _, item := range v {
			b = appendReply(b, item)
		}
	default:
		b = append(b, "$-1\r\n"...)
	}
	return b
}
