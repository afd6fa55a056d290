package zkstore_test

import (
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/zktest"
	"github.com/dibslock/dibs/zkstore"
)

// runClientFaults lets clients lose their servers, or move to others, while they hold the lock.
func runClientFaults(t *testing.T) {
	c := zktest.NewCluster(t, members)
	d := newDrill(t, connect(t, c.Members...))
	w := newWire(t)
	victim := d.open(c.Endpoints(), zkstore.Dial(w.dial))
	for _, locks := range []*dibs.Client{victim, d.open(c.Endpoints())} {
		d.enter(locks)
		d.enter(locks)
	}
	rounds := 1
	if isLong() {
		rounds = 20
	}
	for range rounds {
		d.cutOffClient(w, victim)
		d.moveClient(w, victim, c)
	}
	d.stop()
}

// cutOffClient cuts a client off from all servers until another holds the lock.
func (d *drill) cutOffClient(w *wire, victim *dibs.Client) {
	d.t.Helper()
	ended := d.hold(victim, session+2*time.Second)
	begun := d.rec.Now()
	w.isolate()
	d.t.Logf("FIGURE client cut off: the next entry after %v", d.wantEntry(begun, longestIdle))
	healed := d.rec.Now()
	w.heal()
	<-ended
	d.t.Logf("FIGURE client cut off: an entry %v after its end", d.wantEntry(healed, longestIdle))
}

// moveClient lets a client move from server to server while it holds the lock. It should keep its
// lease, unless this machine is too busy several times.
func (d *drill) moveClient(w *wire, victim *dibs.Client, c *zktest.Cluster) {
	d.t.Helper()
	const attempts = 3
	var err error
	for range attempts {
		if err = d.moveOnce(w, victim, c); err == nil {
			return
		}
		d.t.Logf("a client that moved between servers: %v", err)
	}
	d.t.Errorf("a client that moved between servers: %v", err)
}

func (d *drill) moveOnce(w *wire, victim *dibs.Client, c *zktest.Cluster) error {
	const stays, moves = 700 * time.Millisecond, 9
	done := make(chan error, 1)
	locked := make(chan struct{})
	go func() { done <- d.visit(victim, moves*stays, func() { close(locked) }) }()
	<-locked
	for i := range moves - 1 {
		to := c.Members[i%members].Endpoint()
		w.redirect(func(string) string { return to })
		w.reset()
		d.sleep(stays)
	}
	w.redirect(nil)
	return <-done
}

// A lease should outlast a short interruption of the network.
func TestShortInterruptions(t *testing.T) {
	t.Parallel()
	const short = 500 * time.Millisecond
	w, prefix := newWire(t), newPrefix()
	locks := dibs.New(open(t, endpoints(sharedServer(t)), zkstore.Prefix(prefix), zkstore.Dial(w.dial)), dibs.TTL(5*time.Second), dibs.Timeout(patience))
	t.Cleanup(func() { _ = locks.Close() })
	held := lock(t, locks, "n")
	for what, interrupt := range map[string]func(){
		"no bytes":            func() { w.isolate(); time.Sleep(short); w.heal() },
		"closed connections":  func() { w.reset() },
		"refused connections": func() { w.redirect(func(string) string { return "" }); w.reset(); time.Sleep(short); w.redirect(nil) },
	} {
		interrupt()
		select {
		case <-held.Context().Done():
			t.Fatalf("%s: %v", what, held.Err())
		case <-time.After(6 * time.Second):
		}
	}
	unlock(t, held)
}
