package dibs_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// An announcedStore is a splitStore that records the announcements.
type announcedStore struct {
	splitStore
	mu    sync.Mutex
	begin time.Time
	log   []string // time and names
	trace any      // from the last announcement
}

// traceKey is the key for a trace in a context.
type traceKey struct{}

func (s *announcedStore) Announce(ctx context.Context, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = ctx.Value(traceKey{})
	s.log = append(s.log, fmt.Sprint(time.Since(s.begin), names))
}

func newAnnouncedStore() (*memstore.Store, *announcedStore) {
	s := memstore.New()
	return s, &announcedStore{splitStore: splitStore{driver.Complete(s)}, begin: time.Now()}
}

func (s *announcedStore) want(t *testing.T, log ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.log, log) {
		t.Errorf("announced %q, want %q", s.log, log)
	}
}

// A waiting multi-lock announces the names for its later requests, until it requests them.
func TestMultiMutexAnnouncesLaterNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, announced := newAnnouncedStore()
		a, b := mutex(t, s, "a"), mutex(t, s, "b")
		multi := multiMutex(t, announced, []string{"a", "b", "c"})
		time.Sleep(3 * time.Second)
		unlock(t, a)
		time.Sleep(time.Second)
		unlock(t, b)
		wantHeld(t, multi)
		time.Sleep(time.Minute)
		announced.want(t, "250ms [b c]", "1.45s [b c]", "2.65s [b c]", "3.85s [c]")
	})
}

// A client's multi-locks share their announcements.
func TestAnnouncementsAreShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, announced := newAnnouncedStore()
		holder := mutex(t, s, "a")
		locks := open(t, announced)
		var waiting []*lockCall
		for i := range 100 {
			multi := locks.All([]string{"a", "b", fmt.Sprintf("c%d", i%2)})
			waiting = append(waiting, queue(func() (*dibs.Lease, error) { return multi.Lock(t.Context()) }))
		}
		time.Sleep(2 * time.Second)
		announced.want(t, "250ms [b c0 c1]", "1.45s [b c0 c1]")
		unlock(t, holder)
		for _, w := range waiting {
			wantHeld(t, w)
			unlock(t, w)
		}
	})
}

// A multi-lock announces nothing if it waits for less than 250 ms, only for its last names, or not
// at all. It announces nothing after its call ended.
func TestShortWaitsAnnounceNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, announced := newAnnouncedStore()
		names := []string{"a", "b"}
		locks := open(t, announced).All(names)
		for range 1000 {
			l := multiMutex(t, announced, names)
			wantHeld(t, l)
			unlock(t, l)
			time.Sleep(7 * time.Millisecond)
		}
		for range 50 {
			holder := mutex(t, s, "a")
			l := multiMutex(t, announced, names)
			time.Sleep(200 * time.Millisecond)
			unlock(t, holder)
			wantHeld(t, l)
			unlock(t, l)
		}
		holder := mutex(t, s, "a")
		_, err := locks.Lock(t.Context(), dibs.Attempts(10, time.Second))
		wantErr(t, err, dibs.ErrBusy)
		_, err = locks.Lock(t.Context(), dibs.Wait(240*time.Millisecond))
		wantErr(t, err, dibs.ErrBusy)
		time.Sleep(time.Minute)
		unlock(t, holder)
		last := mutex(t, s, "b")
		l := multiMutex(t, announced, names)
		time.Sleep(time.Minute)
		unlock(t, last)
		wantHeld(t, l)
		unlock(t, l)
		announced.want(t)
	})
}

// An announcement carries a call's trace, like the other requests in the background.
func TestAnnouncementHasTheTraceOfItsCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, announced := newAnnouncedStore()
		holder := mutex(t, s, "a")
		starts := dibs.Observe(dibs.Hooks{AcquireStart: func(ctx context.Context, _ dibs.AcquireStart) context.Context {
			return context.WithValue(ctx, traceKey{}, "trace")
		}})
		l := multiMutex(t, announced, []string{"a", "b"}, starts)
		time.Sleep(time.Second)
		unlock(t, holder)
		wantHeld(t, l)
		unlock(t, l)
		announced.mu.Lock()
		defer announced.mu.Unlock()
		if announced.trace != "trace" {
			t.Errorf("trace %v", announced.trace)
		}
	})
}
