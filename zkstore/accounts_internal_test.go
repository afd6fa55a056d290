package zkstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/driver/inbox"
)

// newOfflineStore returns a store whose server is never asked, with a session.
func newOfflineStore() (*Store, *session) {
	s := New([]string{"127.0.0.1:1"})
	on := newTestSession()
	on.link.id = 7
	s.sessions.add(on)
	return s, on
}

// A request for several names that cannot record one of them uses no session afterwards.
func TestRecordAllFails(t *testing.T) {
	s, on := newOfflineStore()
	if !s.records.add(&record{name: "b", token: "t"}) {
		t.Fatal("not added")
	}
	r := driver.AcquireRequest{Name: "a", With: []string{"b", "c"}, Token: "t", TTL: 10 * time.Second, Weight: 1, Limit: 1}
	if !on.use(s.sizeOf(r)) {
		t.Fatal("not used")
	}
	_, rest, err := s.recordAll(r, on, 0)
	if err == nil {
		t.Fatal("no error")
	}
	on.leave(rest)
	if on.uses != 0 || on.size != 0 {
		t.Errorf("%d uses, size %d", on.uses, on.size)
	}
}

// A record that ended while its moved entry was found uses no session.
func TestReplaceWithoutRecord(t *testing.T) {
	s, on := newOfflineStore()
	own := record{name: "n", token: "t", number: 5}
	if s.replace(&own, record{name: "n", token: "t", owner: 7}) {
		t.Error("replaced a record that does not exist")
	}
	if on.uses != 0 || on.size != 0 {
		t.Errorf("%d uses, size %d", on.uses, on.size)
	}
}

// A client whose Watch ended leaves no view.
func TestViewOfEndedWatch(t *testing.T) {
	s, on := newOfflineStore()
	on.link.watches = make(map[watchKey]chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.addWanted(&interest{in: inbox.New(ctx, nil), rec: record{name: "n", token: "t"}, link: on.link, wanted: true})
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s.views.mu.Lock()
		n := len(s.views.all)
		s.views.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d views are left", n)
		}
	}
}

// The names of a multi-lock get their place on a session together.
func TestNearlyFullSession(t *testing.T) {
	s, on := newOfflineStore()
	r := driver.AcquireRequest{Name: "a", With: []string{strings.Repeat("b", 500), strings.Repeat("c", 500)}}
	if !on.use(mostPaths - s.keys.size("a")) {
		t.Fatal("not used")
	}
	if on.use(s.sizeOf(r)) {
		t.Error("the session has no place for all names")
	}
}

// Whoever ends an entry can wait for the request that adds it, from its beginning.
func TestRequestIsRecorded(t *testing.T) {
	s, on := newOfflineStore()
	on.link.lost = on.link.clock.Now()
	rec := record{name: "n", token: "t", session: on}
	if !s.records.add(&rec) {
		t.Fatal("not added")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		own := rec
		_, err := s.create(ctx, &own, node{weight: 1, limit: 1}, true)
		ended <- err
	}()
	var late <-chan struct{}
	for end := time.Now().Add(5 * time.Second); late == nil; time.Sleep(time.Millisecond) {
		now, _ := s.records.get("n", "t")
		late = now.late
		if time.Now().After(end) {
			t.Fatal("the request is not recorded")
		}
	}
	select {
	case <-late:
		t.Error("answered at once")
	default:
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	<-late
}
