package localstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// A notifier carries events between processes. Each Watch has a socket, named after its client, in
// a directory. An event is a hint: it is dropped if it cannot be delivered at once, because waiters
// retry anyway.
type notifier struct {
	dir string // "" if there is none
}

// maxSocketPath is the longest socket path on the supported systems, including its final zero.
const maxSocketPath = 104

// newNotifier returns the directory for a file's sockets. It is next to the file, or, if its path
// would be too long there, in a place derived from this path.
func newNotifier(file string) notifier {
	dir := file + ".push"
	if len(filepath.Join(dir, socketName(""))) >= maxSocketPath {
		dir = "/tmp/dibs-" + hashOf(file)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return notifier{}
	}
	if info, err := os.Lstat(dir); err != nil || !isPrivate(info) {
		return notifier{} // another user could read the messages
	}
	return notifier{dir}
}

// socketName returns a client's socket name.
func socketName(client string) string { return hashOf(client) }

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:12])
}

// A message is an event in transit.
type message struct {
	Kind   driver.EventKind `json:"k"`
	Token  string           `json:"t"`
	Fence  uint64           `json:"f,omitempty"`
	Ticket uint64           `json:"n,omitempty"`
	Reason string           `json:"r,omitempty"`
}

// send sends each client its events, several in a datagram, because a socket's queue can be as
// short as ten.
func (p notifier) send(notifications []kvstore.Notification) {
	const together = 32
	if p.dir == "" {
		return
	}
	byClient := make(map[string][]message)
	for _, m := range notifications {
		e := m.Event
		byClient[m.Client] = append(byClient[m.Client], message{e.Kind, e.Token, e.Fence, e.Ticket, e.Reason})
	}
	for client, notes := range byClient {
		for some := range slices.Chunk(notes, together) {
			if text, err := json.Marshal(some); err == nil {
				p.deliver(socketName(client), text)
			}
		}
	}
}

// deliver sends a datagram to a socket, or only checks the socket if text is nil. It
// removes the socket if its process is dead.
func (p notifier) deliver(name string, text []byte) {
	path := filepath.Join(p.dir, name)
	if !noListener(sendDatagram(path, text)) {
		return
	}
	// A new socket may seem dead until its process listens.
	const young = 10 * time.Second
	if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()).Abs() > young {
		_ = os.Remove(path)
	}
}

// removeDeadSockets removes dead processes' sockets if they receive no messages.
func (p notifier) removeDeadSockets() {
	boxes, err := os.ReadDir(p.dir)
	if err != nil {
		return
	}
	for _, b := range boxes {
		p.deliver(b.Name(), nil)
	}
}

var errNoNotifier = errors.New("no private directory for sockets; waiters poll")

// Watch implements kvstore.Tables. If a client has two watches, the later watch receives the
// events.
func (t *tables) Watch(ctx context.Context, client string, _ func() bool, on func(driver.Event)) error {
	if t.notifier.dir == "" {
		return errNoNotifier
	}
	_ = os.Mkdir(t.notifier.dir, 0o700) // it may have been removed
	path := filepath.Join(t.notifier.dir, socketName(client))
	conn, err := listen(path)
	if err != nil {
		return err
	}
	made, _ := os.Lstat(path)
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		end()
		if there, err := os.Lstat(path); err == nil && os.SameFile(there, made) {
			_ = os.Remove(path)
		}
		_ = conn.Close()
	}()
	defer t.waiters.watch(client, func() { _ = conn.SetReadDeadline(time.Now()) })()
	on(driver.Event{Kind: driver.EventConnected})
	t.notifier.removeDeadSockets()
	buf := make([]byte, 1<<16)
	for lost := false; ; {
		t.checkOwners(client, conn, on)
		if !lost && isMoved(t.file.checkFiles()) {
			lost = true
			on(driver.Event{Kind: driver.EventFailover}) // the client renews its leases, and detects their loss
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return err // nobody finds the socket
		}
		n, _, err := conn.ReadFromUnix(buf)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range decodeEvents(buf[:n]) {
			on(e)
		}
	}
}

// checkOwners notifies a dead holder's waiters to retry. It requests the next check soon while
// other waiters exist, and otherwise at the interval for checking the files.
func (t *tables) checkOwners(client string, conn *net.UnixConn, on func(driver.Event)) {
	const every, rarely = 200 * time.Millisecond, 500 * time.Millisecond
	_ = conn.SetReadDeadline(time.Now().Add(rarely)) // before other goroutines set it, or their wake-up would be lost
	tokens, others := t.waiters.waitingForDead(client, t.file.liveness.isDead)
	if others {
		_ = conn.SetReadDeadline(time.Now().Add(every))
	}
	for _, token := range tokens {
		on(driver.Event{Kind: driver.EventRetry, Token: token})
	}
}

// decodeEvents reads a datagram. It ignores data from other programs.
func decodeEvents(text []byte) (events []driver.Event) {
	var notes []message
	if json.Unmarshal(text, &notes) != nil {
		return nil
	}
	for _, n := range notes {
		switch n.Kind {
		case driver.EventGranted, driver.EventRetry, driver.EventRevoked, driver.EventWanted:
			events = append(events, driver.Event{Kind: n.Kind, Token: n.Token, Fence: n.Fence, Ticket: n.Ticket, Reason: n.Reason})
		}
	}
	return events
}
