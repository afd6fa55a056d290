package renew

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/clock"
	"github.com/dibslock/dibs/internal/lease"
)

// A holder is a lease of which the queue's tests use only the place.
type holder struct {
	place Place
	lease.State
}

func (h *holder) Place() *Place           { return &h.place }
func (h *holder) LockState() *lease.State { return &h.State }
func (h *holder) UnlockState()            {}
func (h *holder) Commit() bool            { return h.Reason() == lease.Held }
func (h *holder) IsObserved() bool        { return false }
func (h *holder) RenewFailed()            {}
func (h *holder) Renewed()                {}

const ms = time.Millisecond

// A client that holds nothing should hardly wake.
func TestSleep(t *testing.T) {
	q, h := newQueue[*holder](), new(holder)
	if d := q.Sleep(0, 0); d != time.Hour {
		t.Errorf("sleeps %v without leases, want 1h", d)
	}
	q.Set(h, 0, 400*ms, 0)
	if d := q.Sleep(0, 0); d != 400*ms {
		t.Errorf("sleeps %v, want 400ms, until the next action", d)
	}
	q.Set(h, 0, time.Minute, 0)
	if d := q.Sleep(0, 0); d != time.Second {
		t.Errorf("sleeps %v, want 1s: timers stop while the machine is suspended", d)
	}
	q.MakeReady(h, 500*ms)
	if d := q.Sleep(0, 300*ms); d != 300*ms {
		t.Errorf("sleeps %v, want 300ms, until there is room", d)
	}
	if d := q.Sleep(0, clock.Never); d != 500*ms {
		t.Errorf("sleeps %v, want 500ms, until the deadline", d)
	}
	q.Remove(h)
	q.Remove(h)
	q.MakeReady(h, 500*ms) // it ended in the meantime
	if len(q.All()) != 0 || q.Len() > 0 {
		t.Error("it was not removed")
	}
}

// A due lease should stay in the queue, because Close must also release it.
func TestDueLeasesStay(t *testing.T) {
	q, h := newQueue[*holder](), new(holder)
	q.Set(h, 0, time.Second, 100*ms)
	if due := q.Due(999*ms, 0, 10); len(due) != 0 {
		t.Error("due too early")
	}
	if due := q.Due(time.Second, 0, 10); len(due) != 1 || len(q.Due(time.Hour, 0, 10)) != 0 {
		t.Errorf("%d leases are due, want 1, once", len(due))
	}
	q.MakeReady(h, 3*time.Second)
	if batch := q.PopReady(10); len(batch) != 1 || q.Ready() != 0 {
		t.Errorf("%d leases are ready, want 1, once", len(batch))
	}
	if held := q.Close(); len(held) != 1 {
		t.Errorf("Close returned %d leases, want 1", len(held))
	}
	if q.Set(h, 0, time.Second, 0) {
		t.Error("scheduled after Close")
	}
	if q.MakeReady(h, time.Second); q.Len() > 0 {
		t.Error("ready after Close")
	}
}

// A lease is renewed early only together with a due lease, and only to fill the batch.
func TestDueJoinsWhatIsDueSoon(t *testing.T) {
	q := newQueue[*holder]()
	for at, early := range map[time.Duration]time.Duration{1000 * ms: 0, 1500 * ms: 500 * ms, 1501 * ms: 501 * ms, 1600 * ms: 500 * ms} {
		q.Set(new(holder), 0, at, early)
	}
	if due := q.Due(999*ms, 0, 10); len(due) != 0 {
		t.Errorf("%d leases are due before the first one", len(due))
	}
	if due := q.Due(1000*ms, 0, 2); len(due) != 2 {
		t.Errorf("%d leases are due, want the first one and one that may be early", len(due))
	}
}

// Ready leases with the earliest deadlines come first. A passed deadline is due.
func TestReadyByDeadline(t *testing.T) {
	q := newQueue[*holder]()
	for _, deadline := range []int{5, 1, 4, 2, 3} {
		h := new(holder)
		q.Set(h, 0, 0, 0)
		q.MakeReady(h, time.Duration(deadline)*time.Second)
	}
	if due := q.Due(time.Second, 0, 10); len(due) != 1 {
		t.Fatalf("%d deadlines have passed, want 1", len(due))
	}
	var last time.Duration
	for q.Ready() > 0 {
		p := q.ready.first().at
		if p <= last {
			t.Errorf("%v after %v", p, last)
		}
		last = p
		q.PopReady(1)
	}
}

// A lease should move between the heaps without a trace in the other heap.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Fuzz(func(t *testing.T, steps []byte) {
		q := newQueue[*holder]()
		all := make([]*holder, 5)
		for i := range all {
			all[i] = new(holder)
		}
		for i, step := range steps {
			h, at := all[step%5], time.Duration(step)
			switch step / 5 % 6 {
			case 0, 1:
				q.Set(h, 0, at, at/2)
			case 2:
				q.MakeReady(h, at)
			case 3:
				q.Remove(h)
			case 4:
				q.Due(at, 0, 3)
			case 5:
				q.PopReady(2)
			}
			for side, heap := range map[int]*byTime[*holder]{1: &q.scheduled, -1: &q.ready} {
				for j, h := range heap.all {
					if int(h.place.index) != side*(j+1) {
						t.Fatalf("step %d: lease %d of heap %d has index %d", i, j, side, h.place.index)
					}
					if parent := heap.all[max(j-1, 0)/2]; parent.place.at > h.place.at {
						t.Fatalf("step %d: heap %d is not in order", i, side)
					}
				}
			}
		}
	})
}

// However often the connection breaks, all leases are renewed once in three seconds, and a few
// at any time.
func TestSuspectsHaveAPace(t *testing.T) {
	for leases, most := range map[int]int{1: 130, 100: 1400, 1000: 4400} {
		q := newQueue[*holder]()
		for range leases {
			q.Set(new(holder), 0, time.Hour, 0)
		}
		renewed := 0
		for now := time.Second; now < 11*time.Second; now += 100 * ms {
			q.Suspect(q.All(), now)
			some, since := q.PopSuspects(now, leases)
			if since != now && len(some) > 0 {
				t.Fatalf("suspects since %v at %v", since, now)
			}
			if now == time.Second && len(some) != leases {
				t.Errorf("%d of %d leases after the first reconnection", len(some), leases)
			}
			renewed += len(some)
		}
		if renewed > most {
			t.Errorf("%d leases: %d renewals in 10 s, want at most %d", leases, renewed, most)
		}
	}
}

// After a known loss, the other leases are renewed without a limit.
func TestLossesHaveNoPace(t *testing.T) {
	q := newQueue[*holder]()
	for range 1000 {
		q.Set(new(holder), 0, time.Hour, 0)
	}
	for range 10 {
		q.SuspectAll(time.Second)
		if some, _ := q.PopSuspects(time.Second, 1000); len(some) != 1000 {
			t.Errorf("%d leases, want 1000", len(some))
		}
	}
}

// A scheduler that runs late should include actions due within the same time ahead, but none more
// than three times as early as allowed.
func TestDueOfALateScheduler(t *testing.T) {
	for name, test := range map[string]struct {
		at, early, late time.Duration
		due             bool
	}{
		"on time":                        {at: 1100 * ms, early: 200 * ms},
		"late":                           {at: 1100 * ms, early: 200 * ms, late: 100 * ms, due: true},
		"not late enough":                {at: 1100 * ms, early: 200 * ms, late: 99 * ms},
		"three times as early":           {at: 1600 * ms, early: 200 * ms, late: time.Minute, due: true},
		"more than three times as early": {at: 1601 * ms, early: 200 * ms, late: time.Minute},
		"a deadline is not early":        {at: 1001 * ms, late: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue[*holder]()
			q.Set(new(holder), 0, test.at, test.early)
			if due := q.Due(1000*ms, test.late, 10); (len(due) == 1) != test.due {
				t.Errorf("%d leases are due", len(due))
			}
		})
	}
}
