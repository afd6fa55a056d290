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
	"github.com/dibslock/dibs/internal/locktable"
)

// listening watches, and returns the events once they flow, and what ends the watch.
func listening(t *testing.T, s *Store, client string, pending int) (events chan driver.Event, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan driver.Event, pending), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Watch(ctx, client, func(e driver.Event) { events <- e })
	}()
	end = func() { cancel(); <-ended }
	t.Cleanup(end)
	if e := <-events; e.Kind != driver.EventConnected {
		t.Fatalf("%+v, want Up", e)
	}
	return events, end
}

func grant(client, token string) locktable.Notification {
	return locktable.Notification{Client: client, Event: driver.Event{Kind: driver.EventGranted, Token: token, Fence: 7, Ticket: 9}}
}

// A file whose path is too long for a socket beside it has them elsewhere, the same place
// for all processes.
func TestLongPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 25), strings.Repeat("è %?#", 20), "locks.db")
	s, other := openAt(t, path), openAt(t, path)
	t.Cleanup(func() { _ = os.RemoveAll(s.post.dir) })
	if s.post.dir != other.post.dir || len(s.post.dir) > 60 {
		t.Fatalf("%q and %q", s.post.dir, other.post.dir)
	}
	events, _ := listening(t, s, "client", 10)
	other.post.send([]locktable.Notification{grant("client", "token")})
	if e := <-events; e != grant("client", "token").Event {
		t.Errorf("%+v", e)
	}
}

// A directory that others may read or write gets no sockets: waiters ask instead.
func TestOpenDirectory(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	must(t, os.MkdirAll(path+".push", 0o700))
	must(t, os.Chmod(path+".push", 0o755))
	s := openAt(t, path)
	if err := s.Watch(t.Context(), "client", func(driver.Event) {}); err == nil {
		t.Error("it is watched")
	}
	takeAndFree(t, s, "n", 0)
}

// Who does not read holds nobody up, and finds what fits into his queue.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	events, _ := listening(t, s, "client", 1) // the second one blocks the watch
	begin := time.Now()
	for range 2000 {
		s.post.send([]locktable.Notification{grant("client", "token")})
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("2000 events to who does not read took %v", took)
	}
	for range 5 {
		<-events
	}
	go func() {
		for range events { // the watch ends with the test
		}
	}()
}

// Many events for one client come together, however short its queue is.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 300
	s := openAt(t, newFile(t))
	events, _ := listening(t, s, "client", many)
	var mail []locktable.Notification
	for range many {
		mail = append(mail, grant("client", strings.Repeat("t", 200)))
	}
	s.post.send(mail)
	for range many {
		<-events
	}
}

// A watch that ends takes its socket with it, but not that of the one that came later.
func TestSocketsGo(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	_, endFirst := listening(t, s, "client", 10)
	events, endSecond := listening(t, s, "client", 10)
	endFirst()
	s.post.send([]locktable.Notification{grant("client", "token")})
	<-events
	endSecond()
	if left, err := os.ReadDir(s.post.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The socket of a process that was killed is removed by whoever finds it, but not while
// it may be one that is being made, and no living one is.
func TestDeadSockets(t *testing.T) {
	t.Parallel()
	s := openAt(t, newFile(t))
	events, _ := listening(t, s, "alive", 10)
	find := map[string]func(){
		"by a message":  func() { s.post.send([]locktable.Notification{grant("dead", "token")}) },
		"by a newcomer": func() { s.post.tidy() },
	}
	for how, find := range find {
		dead := filepath.Join(s.post.dir, box("dead"))
		conn, err := listen(dead)
		must(t, err)
		must(t, conn.Close()) // the file stays, as after a kill
		find()
		if _, err := os.Lstat(dead); err != nil {
			t.Errorf("found %s: gone, though it may be new: %v", how, err)
		}
		old := time.Now().Add(-time.Hour)
		for _, client := range []string{"dead", "alive"} {
			must(t, os.Chtimes(filepath.Join(s.post.dir, box(client)), old, old))
		}
		find()
		if _, err := os.Lstat(dead); err == nil {
			t.Errorf("found %s: still there", how)
		}
	}
	s.post.send([]locktable.Notification{grant("alive", "token")})
	<-events
}
