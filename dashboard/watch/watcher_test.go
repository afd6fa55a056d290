package watch

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/dashboard/view"
	"github.com/dibslock/dibs/driver"
)

// heldBy returns a name's state with a single exclusive holder.
func heldBy(token string, left time.Duration) driver.State {
	return driver.State{Name: "n", Holders: []driver.Holder{{Token: token, Remaining: left}}, Holding: 1}
}

func linesOf(t *testing.T, w *Watcher, at time.Time, states ...driver.State) string {
	t.Helper()
	var out bytes.Buffer
	for _, s := range w.Update(Poll{Began: at, Ended: at, States: states}) {
		if s.Schema != view.Schema || !s.Time.Equal(at.UTC().Truncate(time.Millisecond)) {
			t.Errorf("want schema and time, have %+v", s)
		}
		out.WriteString(s.Text(0))
	}
	text := strings.ReplaceAll(out.String(), at.Local().Format("15:04:05.000")+"  ", "")
	return regexp.MustCompile(" +").ReplaceAllString(text, " ")
}

// A slow poll does not make an expiry look like a release.
func TestWatcherSeesAnExpiryBetweenSlowPolls(t *testing.T) {
	var w Watcher
	begin := time.Now()
	w.Update(Poll{Began: begin, Ended: begin.Add(40 * time.Millisecond), States: []driver.State{heldBy("t", 30*time.Millisecond)}})
	news := w.Update(Poll{Began: begin.Add(50 * time.Millisecond), Ended: begin.Add(60 * time.Millisecond)})
	if len(news) != 1 || news[0].Event != view.EventExpired {
		t.Errorf("%+v, want one expiry", news)
	}
}

func TestWatcher(t *testing.T) {
	var w Watcher
	at := time.Now()
	many := driver.State{Name: "n", Holding: 101, Waiting: 1, Holders: make([]driver.Holder, 100), Waiters: make([]driver.Waiter, 1)}
	more := many
	more.Holding = 140
	waiting := heldBy("first-token", time.Minute)
	waiting.Waiters, waiting.Waiting = []driver.Waiter{{Token: "second-token", Waited: 2 * time.Second}}, 1
	reserved := heldBy("first-token", 20*time.Second)
	reserved.Holders[0].Reserved = true
	for _, step := range []struct {
		what   string
		states []driver.State
		want   string
	}{
		{"held at the start", []driver.State{heldBy("first-token", time.Minute)}, "held n first… ttl 1m00s\n"},
		{"no change", []driver.State{heldBy("first-token", time.Minute)}, ""},
		{"a waiter", []driver.State{waiting}, "waiting n second… position 1\n"},
		{"a hand-off", []driver.State{heldBy("second-token", time.Minute)}, "released n first…\nhanded off n second… waited 12s, after first…\n"},
		{"a release", nil, "released n second… held 10s\n"},
		{"others acquire and release between two polls", nil, ""},
		{"an acquisition", []driver.State{heldBy("third-token", 10*time.Second)}, "acquired n third… ttl 10s\n"},
		{"an expiry", nil, "expired n third… held 10s\n"},
		{"released and reserved", []driver.State{reserved}, "reserved n first… [reserved] ttl 20s\n"},
		{"more holders than are listed", []driver.State{many}, "changed n 101 holders, 1 waiter\n"},
		{"no change of the counts", []driver.State{many}, ""},
		{"a change of a count", []driver.State{more}, "changed n 140 holders, 1 waiter\n"},
		{"a waiter without a holder", []driver.State{{Name: "n", Waiting: 1, Waiters: waiting.Waiters}}, "changed n 0 holders, 1 waiter\n"},
		{"the waiter gives up", nil, "gone n second… waited 12s\n"},
	} {
		at = at.Add(10 * time.Second)
		if have := linesOf(t, &w, at, step.states...); have != step.want {
			t.Errorf("%s: want\n%s\nhave\n%s", step.what, step.want, have)
		}
	}
}

// A holder seen several times keeps the time of the first poll that saw it, and its fence's time
// if known.
func TestWatcherKnowsHowLongALeaseWasHeld(t *testing.T) {
	var w Watcher
	at := time.Now()
	poll := func(states ...driver.State) []view.Change {
		at = at.Add(10 * time.Second)
		return w.Update(Poll{Began: at, Ended: at, States: states})
	}
	poll()
	for range 3 {
		poll(heldBy("token", -1))
	}
	if news := poll(); len(news) != 1 || news[0].Event != view.EventReleased || news[0].Held != 30_000 {
		t.Errorf("want a release after 30s of a lease that never expires, have %+v", news)
	}
	fenced := heldBy("token", time.Minute)
	fenced.Holders[0].Fence = uint64(at.Add(-50 * time.Second).UnixMicro())
	poll(fenced)
	if news := poll(); len(news) != 1 || (news[0].Held-70_000) > 1 || news[0].Held < 70_000 {
		t.Errorf("want a release after 70s, have %+v", news)
	}
}

// queueOf returns a name's state with a single holder and many waiters, with the first 100 listed.
func queueOf(holder string, waiting int, waiters ...string) driver.State {
	s := heldBy(holder, time.Minute)
	s.Waiting = waiting
	for i := range min(waiting, 100) {
		w := driver.Waiter{Token: fmt.Sprint("waiter-", i)}
		if i < len(waiters) {
			w.Token = waiters[i]
		}
		s.Waiters = append(s.Waiters, w)
	}
	return s
}

// A name's holders are compared even if not all waiters are listed.
func TestWatcherSeesTheHoldersOfALongQueue(t *testing.T) {
	var w Watcher
	at := time.Now()
	for _, step := range []struct {
		what string
		now  driver.State
		want string
	}{
		{"the first poll", queueOf("first-token", 150, "second-token"), "held n first… ttl 1m00s\nchanged n 1 holder, 150 waiters\n"},
		{"a hand-off", queueOf("second-token", 150), "released n first…\nhanded off n second… waited 10s, after first…\n"},
		{"no change", queueOf("second-token", 150), ""},
		{"several hand-offs", queueOf("third-token", 120), "released n second… held 20s\nacquired n third… ttl 1m00s\nchanged n 1 holder, 120 waiters\n"},
		{"all are listed again", queueOf("fourth-token", 100), "released n third… held 10s\nacquired n fourth… ttl 1m00s\nchanged n 1 holder, 100 waiters\n"},
	} {
		at = at.Add(10 * time.Second)
		if have := linesOf(t, &w, at, step.now); have != step.want {
			t.Errorf("%s: want\n%s\nhave\n%s", step.what, step.want, have)
		}
	}
}

// A hand-off's wait should end when the fence was issued, even long before the poll that sees it.
func TestWatcherKnowsHowLongAWaiterWaited(t *testing.T) {
	const second = time.Second
	began := time.Now()
	for what, c := range map[string]struct{ granted, want time.Duration }{
		"a lease without a fence":       {0, 12 * second},
		"between the polls":             {3 * second, 5 * second},
		"a server whose clock is slow":  {-5 * second, 2 * second},
		"a server whose clock is ahead": {15 * second, 12 * second},
	} {
		var w Watcher
		before, after := queueOf("first-token", 1, "second-token"), heldBy("second-token", time.Minute)
		before.Waiters[0].Waited = 2 * second
		if c.granted != 0 {
			after.Holders[0].Fence = uint64(began.Add(c.granted).UnixMicro())
		}
		w.Update(Poll{Began: began, Ended: began, States: []driver.State{before}})
		news := w.Update(Poll{Began: began.Add(10 * second), Ended: began.Add(10 * second), States: []driver.State{after}})
		if len(news) != 2 || news[1].Event != view.EventHandedOff || (time.Duration(news[1].Waited)*time.Millisecond-c.want).Abs() > 2*time.Millisecond {
			t.Errorf("%s: want a hand-off after %v, have %+v", what, c.want, news)
		}
	}
}

// A lease that ends with a reservation counts as two holders: the lease and the reservation.
func TestWatcherSeesAReservationAsANewHolder(t *testing.T) {
	var w Watcher
	at := time.Now()
	lease, reserved := heldBy("first-token", time.Minute), heldBy("first-token", 20*time.Second)
	reserved.Holders[0].Reserved = true
	linesOf(t, &w, at, lease)
	if have := linesOf(t, &w, at, reserved); have != "released n first…\nreserved n first… [reserved] ttl 20s\n" {
		t.Errorf("have %s", have)
	}
}

// A hand-off names the previous holder only if there is no other.
func TestWatcherSeesAHandOffAmongReaders(t *testing.T) {
	var w Watcher
	at := time.Now()
	shared := func(tokens ...string) driver.State {
		s := driver.State{Name: "n", Holding: len(tokens)}
		for _, token := range tokens {
			s.Holders = append(s.Holders, driver.Holder{Token: token, Weight: 1, Remaining: time.Minute})
		}
		return s
	}
	before := shared("first-token", "second-token")
	before.Waiting, before.Waiters = 1, []driver.Waiter{{Token: "third-token", Waited: 2 * time.Second}}
	linesOf(t, &w, at, before)
	have := linesOf(t, &w, at, shared("second-token", "third-token"))
	if have != "released n first…\nhanded off n third… waited 2.0s\n" {
		t.Errorf("have %s", have)
	}
}

func TestWatcherDuringAnOutage(t *testing.T) {
	var w Watcher
	at := time.Now()
	events := func(states []driver.State, err error) (names []string) {
		for _, s := range w.Update(Poll{Began: at, Ended: at, States: states, Err: err}) {
			names = append(names, s.Event+s.Error)
		}
		return names
	}
	wantEqual := func(want, have []string) {
		t.Helper()
		if !slices.Equal(want, have) {
			t.Errorf("want %q, have %q", want, have)
		}
	}
	wantEqual([]string{"awaybroken"}, events(nil, errors.New("dibs: broken")))
	wantEqual(nil, events(nil, errors.New("still broken")))
	wantEqual([]string{"back", "held"}, events([]driver.State{heldBy("token", -1)}, nil))
	wantEqual([]string{"awaybroken"}, events(nil, errors.New("broken")))
	wantEqual([]string{"back"}, events([]driver.State{heldBy("token", -1)}, nil))
}
