package loadsim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs/driver"
)

func TestProcessor(t *testing.T) {
	for name, c := range map[string]struct {
		events         []Event
		at, work, want time.Duration
	}{
		"alone":                  {nil, 5 * ms, 7 * ms, 12 * ms},
		"within its share":       {[]Event{Throttle(0, 0.3)}, 5 * ms, 7 * ms, 12 * ms},
		"beyond its share":       {[]Event{Throttle(0, 0.3)}, 0, 70 * ms, 210 * ms},
		"late in a period":       {[]Event{Throttle(0, 0.3)}, 95 * ms, 40 * ms, 205 * ms},
		"stopped before":         {[]Event{Stop(0, second)}, 10 * ms, 7 * ms, second + 7*ms},
		"stopped meanwhile":      {[]Event{Stop(10*ms, second)}, 5 * ms, 7 * ms, second + 12*ms},
		"stopped with a share":   {[]Event{Throttle(0, 0.5), Stop(10*ms, 90*ms)}, 0, 40 * ms, 130 * ms},
		"limited meanwhile":      {[]Event{Throttle(0, 1), Throttle(100*ms, 0.1)}, 50 * ms, 70 * ms, 210 * ms},
		"cut, which changes not": {[]Event{Cut(0, second)}, 5 * ms, 7 * ms, 12 * ms},
	} {
		if have := newProcessor(c.events).run(c.at, c.work); have != c.want {
			t.Errorf("%s: %v of work at %v ends at %v, want %v", name, c.work, c.at, have, c.want)
		}
	}
}

// In turn, as many leases as Holdable returns can be held, and hardly more.
func TestHoldable(t *testing.T) {
	for name, p := range map[string]Plan{
		"limited": {Leases: Equal(1, 100_000), Events: []Event{Throttle(0, 0.004)}},
		"stopped": {Leases: Equal(1, 100_000), Events: []Event{Throttle(0, 0.01), Stop(30*second, 20*second)}},
		"slower":  {Leases: Equal(1, 100_000), Events: []Event{Throttle(0, 0.01), Throttle(40*second, 0.003)}},
	} {
		p = p.withDefaults()
		p.Duration = 5 * time.Minute
		most := Holdable(p, 0)
		if most >= p.leases() || !heldInTurn(p, most*99/100) || heldInTurn(p, most*101/100) {
			t.Errorf("%s: %d of %d leases can be held: in turn 1 %% less %v, 1 %% more %v, want true, false", name, most, p.leases(),
				heldInTurn(p, most*99/100), heldInTurn(p, most*101/100))
		}
	}
}

// heldInTurn reports whether n leases are held if the server renews them in turn.
func heldInTurn(p Plan, n int) bool {
	processor, at := newProcessor(p.Events), time.Duration(0)
	last := make([]time.Duration, n)
	for at < p.Duration-p.TTL {
		for i := range last {
			at = processor.run(at, p.Costs.renewal())
			if at-last[i] > p.TTL-p.TTL/50 {
				return false
			}
			last[i] = at
		}
	}
	return true
}

// open returns a link to a server, which runs until the test ends.
func open(t *testing.T, p Plan) *link {
	s := newServer(p.withDefaults())
	end := make(chan struct{})
	go s.run(end)
	t.Cleanup(func() { close(end) })
	return newLink(s, 0)
}

func acquireOf(name string, until time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Token: "t-" + name, Client: "c", TTL: 30 * second, Weight: 1, Limit: 1, Until: time.Now().Add(until)}
}

func TestExecutesWhatNobodyAwaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Plan{Events: []Event{Stop(second, 3*second)}})
		reply, err := l.Acquire(t.Context(), acquireOf("n", second/2))
		if err != nil || !reply.Held {
			t.Fatalf("have %v, %v, want a lease", reply, err)
		}
		time.Sleep(2 * second)
		extension := driver.ExtendRequest{Name: "n", Token: "t-n", Client: "c", TTL: time.Hour}
		ctx, cancel := context.WithTimeout(t.Context(), second/2)
		defer cancel()
		if err := l.Extend(ctx, []driver.ExtendRequest{extension})[0]; !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("the server is stopped, but an extension returns %v", err)
		}
		time.Sleep(2 * second)
		state, err := l.server.data.Inspect(t.Context(), "n")
		if err != nil || len(state.Holders) != 1 || state.Holders[0].Remaining < 59*time.Minute {
			t.Errorf("have %v, %v, want the lease to last for an hour: the extension is executed late", state, err)
		}
		if all := l.server.sample(); all.Late != 1 || all.Abandoned != 1 {
			t.Errorf("have %+v, want one late renewal", all)
		}
	})
}

func TestRestartBreaksConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := LoseData(2*second, second)
		l := open(t, Plan{Events: []Event{Stop(second, second), e}})
		go func() {
			time.Sleep(2 * second)
			l.server.restart(e)
		}()
		var events []driver.EventKind
		watch, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = l.Watch(watch, "c", nil, func(e driver.Event) { events = append(events, e.Kind) })
		}()
		time.Sleep(second + second/2)
		if _, err := l.Acquire(t.Context(), acquireOf("n", 10*second)); !errors.Is(err, errReset) {
			t.Errorf("a request that waits during the restart returns %v, want %v", err, errReset)
		}
		if at := l.server.now(); at != 2*second {
			t.Errorf("it returns after %v, want 2s", at)
		}
		time.Sleep(ms)
		if _, err := l.Acquire(t.Context(), acquireOf("n", 10*second)); !errors.Is(err, errRefused) {
			t.Errorf("the server is down, but a request returns %v, want %v", err, errRefused)
		}
		time.Sleep(2 * second)
		if reply, err := l.Acquire(t.Context(), acquireOf("n", second)); err != nil || !reply.Held {
			t.Errorf("the server is back: have %v, %v, want a lease", reply, err)
		}
		end()
		<-done
		want := []driver.EventKind{driver.EventConnected, driver.EventDisconnected, driver.EventConnected}
		if len(events) != 3 || events[0] != want[0] || events[1] != want[1] || events[2] != want[2] {
			t.Errorf("have the events %v, want %v", events, want)
		}
	})
}

func TestCutDelaysMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Plan{Events: []Event{Cut(second, second, 0), Cut(5*second, second, 1)}})
		time.Sleep(second + second/2)
		if _, err := l.Acquire(t.Context(), acquireOf("late", second/4)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the link is cut, but a request returns %v", err)
		}
		if reply, err := l.Acquire(t.Context(), acquireOf("n", second)); err != nil || !reply.Held {
			t.Errorf("have %v, %v, want a lease after the cut", reply, err)
		}
		if at := l.server.now(); at < 2*second || at > 2*second+2*ms {
			t.Errorf("the reply came at %v, want 2s", at)
		}
		time.Sleep(4 * second)
		if _, err := l.Acquire(t.Context(), acquireOf("other", second/4)); err != nil {
			t.Errorf("another link is cut: %v", err)
		}
	})
}

func TestDelayedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Plan{Events: []Event{Delay(0, second, second/2)}})
		if _, err := l.Acquire(t.Context(), acquireOf("n", second)); err != nil {
			t.Fatal(err)
		}
		if at := l.server.now(); at < second/2 || at > second/2+2*ms {
			t.Errorf("a request took %v, want half a second", at)
		}
	})
}

func TestNarrowLinkTransmitsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Plan{Bandwidth: 1000})
		for range 2 {
			if _, err := l.Acquire(t.Context(), acquireOf("n", second)); err != nil {
				t.Fatal(err)
			}
		}
		if at := l.server.now(); at < second/2 || at > second/2+2*ms {
			t.Errorf("two requests took %v, want half a second", at)
		}
	})
}
