package drill

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// Deaths returns how often a test kills a master.
func Deaths() int {
	if redistest.Long() {
		return 20
	}
	return 2
}

// SentinelFailover kills the master under load several times. With WithReplicas, no two leases
// should conflict; without it, conflicts are counted. Fences should never decrease. Before Redis 7,
// sentinels look at the replicas once in 10 s. They may promote a replica without the last writes,
// and the other replica follows late, so a lock may have no replica.
func (o Opener) SentinelFailover(t *testing.T, rounds int, options ...redisstore.Option) {
	s := redistest.StartSentinels(t, 2, 3)
	load := history.Workload{
		Workers: 16, Interval: 2 * time.Millisecond, Hold: mostlyShortWork,
		Options: []dibs.Option{dibs.TTL(shortTTL), dibs.Timeout(longTimeout)},
	}
	for i := range 60 {
		load.Names = append(load.Names, fmt.Sprintf("order:%d", i))
	}
	var stores []driver.Store
	for range 3 {
		stores = append(stores, o.Sentinel(t, s.Addrs(), s.MasterName, options...))
	}
	machine := WatchMachine(t.Context(), s.Addrs()[0])
	w := load.Start(stores...)
	var promoted []history.Moment
	var peace time.Duration
	for start := w.Now(); len(promoted) < rounds; start = promoted[len(promoted)-1] {
		time.Sleep(500 * time.Millisecond) // without failures
		peace += w.Now().At - start.At
		dead, err := s.KillMaster()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.WaitPromoted(dead); err != nil {
			t.Fatal(err)
		}
		promoted = append(promoted, w.Now())
		if err := s.Rejoin(dead); err != nil {
			t.Fatal(err)
		}
	}
	const limit = time.Second // for the next lock after a promotion
	time.Sleep(limit)         // the load also continues after the last failover
	over := w.Now()
	v := evaluate(w.Stop(), over)
	var longest time.Duration
	for _, at := range promoted {
		next, ok := v.next(at)
		if late := machine.Late(); !ok || next > limit+late {
			t.Errorf("next lock %v (%v) after a promotion, want it within %v (control %v)", next, ok, limit, late)
		}
		longest = max(longest, next)
	}
	t.Logf("FIGURE %d failovers, %v with a master: %d locks, %d conflicts, %d leases lost, %d fences decreased, %d errors, next lock at most %v after a promotion",
		rounds, peace, len(v.entries), len(v.conflicts), v.lost, len(v.fences), len(v.errors), longest)
	v.wantFences(t)
	if len(options) > 0 && s.Servers[0].Before7() {
		return
	}
	v.wantNoErrors(t)
	if len(options) > 0 {
		v.wantNoConflicts(t)
	}
}

// unreplicated starts a master with two replicas and three sentinels. A lock is held and awaited,
// but the replicas received none of its data.
func (o Opener) unreplicated(t *testing.T) (s *redistest.Sentinels, master *redistest.Server, l *loss) {
	s = redistest.StartSentinels(t, 2, 3)
	master, err := s.Master()
	if err != nil {
		t.Fatal(err)
	}
	open := func() driver.Store { return o.Sentinel(t, s.Addrs(), s.MasterName) }
	l = newLoss(t, WatchMachine(t.Context(), s.Addrs()[0]), open(), open(), "order:42")
	for _, server := range s.Servers {
		if server != master {
			clearReplica(t, master, server)
		}
	}
	return s, master, l
}

// SentinelLoss checks the failover to a replica without the lock: the holder is notified
// soon, the waiter acquires the lock, and its fence is larger.
func (o Opener) SentinelLoss(t *testing.T) {
	s, master, l := o.unreplicated(t)
	if _, err := s.KillMaster(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitPromoted(master); err != nil {
		t.Fatal(err)
	}
	l.want(time.Now())
}

// SentinelWake is the same with a master paused, not dead, until another is promoted. When it
// resumes, it can act as the master until the sentinels demote it.
func (o Opener) SentinelWake(t *testing.T) {
	s, master, l := o.unreplicated(t)
	if err := master.Pause(); err != nil {
		t.Fatal(err)
	}
	_, err := s.WaitPromoted(master)
	promoted := time.Now()
	if err := errors.Join(err, master.Resume()); err != nil {
		t.Fatal(err)
	}
	l.want(promoted)
}

// clearReplica removes a replica's data, as if it had missed all writes. First it waits until the
// replica has received them: a write arriving later would not be removed.
func clearReplica(t *testing.T, master, replica *redistest.Server) {
	t.Helper()
	if err := redistest.WaitCaughtUp(master, replica); err != nil {
		t.Fatal(err)
	}
	replica.MustCmd(t, "CONFIG", "SET", "replica-read-only", "no")
	replica.MustCmd(t, "FLUSHALL")
	replica.MustCmd(t, "CONFIG", "SET", "replica-read-only", "yes")
}

// A loss is a holder and a waiter while a master dies.
type loss struct {
	t        *testing.T
	machine  *Machine
	first    *dibs.Lease
	notified chan time.Time
	second   chan grantResult
}

type grantResult struct {
	at    time.Time
	fence uint64
	err   error
}

// newLoss starts a holder and a waiter on a name.
func newLoss(t *testing.T, machine *Machine, holder, waiter driver.Store, name string) *loss {
	t.Helper()
	l := &loss{t: t, machine: machine, notified: make(chan time.Time, 1), second: make(chan grantResult, 1)}
	first, second := dibs.New(holder), dibs.New(waiter)
	t.Cleanup(func() { first.Close(); second.Close() })
	l.first = Lock(t, first, name)
	context.AfterFunc(l.first.Context(), func() { l.notified <- time.Now() })
	ctx := Within(t, 3*Generous)
	go func() {
		lease, err := second.Mutex(name).Lock(ctx)
		e := grantResult{at: time.Now(), err: err}
		if err == nil {
			e.fence = lease.Fence()
		}
		l.second <- e
	}()
	Eventually(t, "the second client is queued", func() bool {
		state, err := first.Inspect(t.Context(), name)
		return err == nil && state.Waiting == 1
	})
	return l
}

// want checks the events seen by both clients, and their times.
func (l *loss) want(promoted time.Time) {
	l.t.Helper()
	const soon, enter = 500 * time.Millisecond, time.Second
	l.machine.Begin()
	var notified, acquired time.Duration
	select {
	case at := <-l.notified:
		notified = at.Sub(promoted)
	case <-time.After(Generous):
		l.t.Fatal("the holder is not notified of the loss")
	}
	var lost *dibs.LostError
	if err := l.first.Err(); !errors.As(err, &lost) || lost.Reason != dibs.ReasonTaken {
		l.t.Errorf("the holder's error is %v, want ReasonTaken", err)
	}
	select {
	case e := <-l.second:
		acquired = e.at.Sub(promoted)
		if e.err != nil {
			l.t.Fatalf("the waiter: %v", e.err)
		}
		if e.fence <= l.first.Fence() {
			l.t.Errorf("the waiter has fence %d after %d", e.fence, l.first.Fence())
		}
	case <-time.After(Generous):
		l.t.Fatal("the waiter does not acquire the lock")
	}
	late := l.machine.Late()
	l.t.Logf("FIGURE after the promotion the holder was notified in %v, and the waiter acquired the lock in %v (control %v)", notified, acquired, late)
	if notified > soon+late || acquired > enter+late {
		l.t.Errorf("notified after %v, acquired after %v: want %v and %v (plus %v for the busy machine)", notified, acquired, soon, enter, late)
	}
}
