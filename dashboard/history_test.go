package dashboard

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

func TestHistory(t *testing.T) {
	var h history
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	h.add(at, view.Counts{Held: 9, Waiting: 9}, 100) // the time before is unknown
	if p := h.points(at); len(p) != 0 {
		t.Errorf("a point after one poll: %+v", p)
	}
	for i := range 20 {
		at = at.Add(time.Second)
		h.add(at, view.Counts{Held: i, Waiting: i % 7, Longest: time.Duration(i%5) * time.Second}, 2)
	}
	p := h.points(at)
	if len(p) != 2 {
		t.Fatalf("%d points in 20 s", len(p))
	}
	want := point{At: at, Over: pointTime, Held: 19, Waiting: 6, Longest: 4 * time.Second, Grants: 20}
	if p[1] != want || p[1].rate() != 2 {
		t.Errorf("have %+v\nwant %+v", p[1], want)
	}
	if p[0].Held != 9 || p[0].Grants != 20 {
		t.Errorf("the first point: %+v", p[0])
	}
}

// After a time without polls a point must only cover the time of polls. Old points must be
// dropped.
func TestHistoryHasGapsAndAnEnd(t *testing.T) {
	var h history
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	add := func(pause time.Duration) {
		at = at.Add(pause)
		h.add(at, view.Counts{Held: 1}, 1)
	}
	for range 3 {
		add(20 * time.Second)
	}
	if p := h.points(at); len(p) != 2 || p[1].Over != 20*time.Second || p[1].Grants != 1 {
		t.Errorf("polls that are far apart: %+v", p)
	}
	add(time.Minute)
	add(10 * time.Second)
	if p := h.points(at); len(p) != 3 || p[2].Over != 10*time.Second || p[2].Grants != 1 {
		t.Errorf("after a gap: %+v", p)
	}
	for range 2 * maxPoints {
		add(10 * time.Second)
	}
	if p := h.points(at); len(p) != maxPoints || p[0].At.Add((maxPoints-1)*pointTime) != at {
		t.Errorf("%d points since %v, now %v", len(p), p[0].At, at)
	}
	if p := h.points(at.Add(2 * time.Hour)); len(p) != 0 {
		t.Errorf("%d points two hours later", len(p))
	}
}

// Intentionally rare polls should have a history.
func TestHistoryOfRarePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := recorded(t, held(t, "a"), Config{Every: time.Minute})
		time.Sleep(10*time.Minute + time.Second)
		if answer := decoded[historyAnswer](t, body(t, h, "api/history")); len(answer.Points) != 10 {
			t.Errorf("%d points in 10 minutes, want 10", len(answer.Points))
		}
	})
}

// If a store answers at once, Record polls as often as a page.
func TestRecordOfAFastStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countingStore{Full: driver.Complete(memstore.New())}
		recorded(t, s, Config{Every: 2 * time.Second})
		time.Sleep(time.Minute + time.Second)
		if lists := s.lists.Load(); lists != 31 {
			t.Errorf("%d polls in a minute, want 31", lists)
		}
	})
}

// Record polls while no page is open, less often if polls take long.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countingStore{Full: driver.Complete(slowStore{driver.Complete(memstore.New()), 400 * time.Millisecond})}
		h := recorded(t, s, Config{})
		token := tokenOf("web-7", 211, driver.KindMutex, 1, "")
		time.Sleep(time.Second)
		acquire(t, s, "a", token)
		time.Sleep(30 * time.Minute)
		if lists := s.lists.Load(); lists < 170 || lists > 180 {
			t.Errorf("%d polls in half an hour, want one in 10.4 s", lists)
		}
		var answer historyAnswer
		if err := json.Unmarshal([]byte(body(t, h, "api/history")), &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Points) < 170 || len(answer.Points) > 180 {
			t.Fatalf("%d points", len(answer.Points))
		}
		if p := answer.Points[0]; p.Held != 1 || p.Grants != 1 || p.Over < 10_000 || p.Over > 12_000 || p.Time.IsZero() {
			t.Errorf("the first point: %+v", p)
		}
		if p := answer.Points[100]; p.Grants != 0 {
			t.Errorf("a later point: %+v", p)
		}
	})
}
