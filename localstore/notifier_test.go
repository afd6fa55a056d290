//go:build unix

package localstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
)

// watch watches for a client. It returns the events after the first, and a function to end the
// watch.
func watch(t *testing.T, s *Store, client string, pending int) (events chan driver.Event, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan driver.Event, pending), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Watch(ctx, client, nil, func(e driver.Event) { events <- e })
	}()
	end = func() { cancel(); <-ended }
	t.Cleanup(end)
	if e := <-events; e.Kind != driver.EventConnected {
		t.Fatalf("%+v, want EventConnected", e)
	}
	return events, end
}

func grantEvent(client, token string) kvstore.Notification {
	return kvstore.Notification{Client: client, Event: driver.Event{Kind: driver.EventGranted, Token: token, Fence: 7, Ticket: 9}}
}

// If the path is too long for sockets next to the file, they should be in another place, the same
// for all processes.
func TestLongPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 25), strings.Repeat("è %?#", 20), "locks.db")
	s, other := openAt(t, path), openAt(t, path)
	t.Cleanup(func() { _ = os.RemoveAll(s.tables.notifier.dir) })
	if s.tables.notifier.dir != other.tables.notifier.dir || len(s.tables.notifier.dir) > 60 {
		t.Fatalf("%q and %q", s.tables.notifier.dir, other.tables.notifier.dir)
	}
	events, _ := watch(t, s, "client", 10)
	other.tables.notifier.send([]kvstore.Notification{grantEvent("client", "token")})
	if e := <-events; e != grantEvent("client", "token").Event {
		t.Errorf("%+v", e)
	}
}

// A directory that other users can access should get no sockets: waiters poll.
func TestOpenDirectory(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	must(t, os.MkdirAll(path+".push", 0o700))
	must(t, os.Chmod(path+".push", 0o755))
	s := openAt(t, path)
	if err := s.Watch(t.Context(), "client", nil, func(driver.Event) {}); err == nil {
		t.Error("Watch succeeded")
	}
	lockAndRelease(t, s, "n", 0)
}

// A client that does not read blocks no other, and gets the events that fit into its queue.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	events, _ := watch(t, s, "client", 1) // the second event blocks the watch
	begin := time.Now()
	for range 2000 {
		s.tables.notifier.send([]kvstore.Notification{grantEvent("client", "token")})
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("2000 events to a blocked client took %v", took)
	}
	for range 5 {
		<-events
	}
	go func() {
		for range events { // the watch ends with the test
		}
	}()
}

// Many events for a client are joined into few datagrams, however short its queue is.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 300
	s := openAt(t, newFile(t))
	events, _ := watch(t, s, "client", many)
	var notifications []kvstore.Notification
	for range many {
		notifications = append(notifications, grantEvent("client", strings.Repeat("t", 200)))
	}
	s.tables.notifier.send(notifications)
	for range many {
		<-events
	}
}

// A watch must remove its socket when it ends, but not a later watch's socket.
func TestSocketsGo(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	_, endFirst := watch(t, s, "client", 10)
	events, endSecond := watch(t, s, "client", 10)
	endFirst()
	s.tables.notifier.send([]kvstore.Notification{grantEvent("client", "token")})
	<-events
	endSecond()
	if left, err := os.ReadDir(s.tables.notifier.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A killed process's socket is removed by the next process that finds it. A new socket or a
// living process's socket is not removed.
func TestDeadSockets(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	events, _ := watch(t, s, "alive", 10)
	find := map[string]func(){
		"by a message":  func() { s.tables.notifier.send([]kvstore.Notification{grantEvent("dead", "token")}) },
		"by a newcomer": func() { s.tables.notifier.removeDeadSockets() },
	}
	for how, find := range find {
		dead := filepath.Join(s.tables.notifier.dir, socketName("dead"))
		conn, err := listen(dead)
		must(t, err)
		must(t, conn.Close()) // the file stays, as after a kill
		find()
		if _, err := os.Lstat(dead); err != nil {
			t.Errorf("found %s: removed, although it may be new: %v", how, err)
		}
		old := time.Now().Add(-time.Hour)
		for _, client := range []string{"dead", "alive"} {
			must(t, os.Chtimes(filepath.Join(s.tables.notifier.dir, socketName(client)), old, old))
		}
		find()
		if _, err := os.Lstat(dead); err == nil {
			t.Errorf("found %s: still there", how)
		}
	}
	s.tables.notifier.send([]kvstore.Notification{grantEvent("alive", "token")})
	<-events
}
