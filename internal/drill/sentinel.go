package drill

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/history"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// Deaths is how often a master dies.
func Deaths() int {
	if redistest.Long() {
		return 20
	}
	return 2
}

// SentinelFailover kills the master under load, again and again. Where one replica at
// least must have each lock, nobody ever holds beside another; where none must, what
// happens is counted. Fences never go back.
func (o Opener) SentinelFailover(t *testing.T, rounds int, options ...redisstore.Option) {
	s := redistest.StartSentinels(t, 2, 3)
	storm := history.Storm{
		Workers: 16, Pace: 2 * time.Millisecond, Hold: workOrStay,
		Options: []dibs.Option{dibs.TTL(shortLived), dibs.Timeout(patient)},
	}
	for i := range 60 {
		storm.Names = append(storm.Names, fmt.Sprintf("order:%d", i))
	}
	var stores []dibs.Store
	for range 3 {
		stores = append(stores, o.Sentinel(t, s.Addrs(), s.MasterName, options...))
	}
	machine := WatchMachine(t.Context(), s.Addrs()[0])
	w := storm.Start(stores...)
	var promoted []history.Moment
	var peace time.Duration
	for calm := w.Now(); len(promoted) < rounds; calm = promoted[len(promoted)-1] {
		time.Sleep(500 * time.Millisecond) // of work in peace
		peace += w.Now().At - calm.At
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
	over := w.Now()
	v := judge(w.Stop(), over)
	var longest time.Duration
	for _, at := range promoted {
		next, ok := v.next(at)
		if late := machine.Late(); !ok || next > time.Second+late {
			t.Errorf("next entry %v (%v) after a promotion, want it within 1s (control %v)", next, ok, late)
		}
		longest = max(longest, next)
	}
	t.Logf("FIGURE %d failovers, %v with a master: %d entries, %d double holds, %d leases lost, %d fences went back, %d errors, next entry after a promotion %v at most",
		rounds, peace, len(v.entries), len(v.doubles), v.lost, len(v.fences), len(v.errors), longest)
	v.wantFences(t)
	v.wantNoErrors(t)
	if len(options) > 0 {
		v.wantNoDoubles(t)
	}
}

// unreplicated starts a master with two replicas and three sentinels. A lock is held and
// waited for, and the replicas have never heard of it.
func (o Opener) unreplicated(t *testing.T) (s *redistest.Sentinels, master *redistest.Server, l *loss) {
	s = redistest.StartSentinels(t, 2, 3)
	master, err := s.Master()
	if err != nil {
		t.Fatal(err)
	}
	open := func() dibs.Store { return o.Sentinel(t, s.Addrs(), s.MasterName) }
	l = newLoss(t, WatchMachine(t.Context(), s.Addrs()[0]), open(), open(), "order:42")
	for _, server := range s.Servers {
		if server != master {
			forget(t, server)
		}
	}
	return s, master, l
}

// SentinelLoss checks a failover to a replica that did not receive the lock: the holder is
// notified soon of its loss, the waiter acquires the lock, and its fence is larger.
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

// SentinelWake checks the same of a master that does not die, but is frozen until
// another one has been promoted: it wakes, and takes itself for the master until the
// sentinels tell it otherwise.
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

// forget makes a replica one that missed all writes so far.
func forget(t *testing.T, replica *redistest.Server) {
	t.Helper()
	replica.MustCmd(t, "CONFIG", "SET", "replica-read-only", "no")
	replica.MustCmd(t, "FLUSHALL")
	replica.MustCmd(t, "CONFIG", "SET", "replica-read-only", "yes")
}

// A loss is a holder, and one who waits for him, while a master dies.
type loss struct {
	t       *testing.T
	machine *Machine
	first   *dibs.Lease
	told    chan time.Time
	second  chan entry
}

type entry struct {
	at    time.Time
	fence uint64
	err   error
}

// newLoss lets two clients hold a name and wait for it.
func newLoss(t *testing.T, machine *Machine, holder, waiter dibs.Store, name string) *loss {
	t.Helper()
	l := &loss{t: t, machine: machine, told: make(chan time.Time, 1), second: make(chan entry, 1)}
	first, second := dibs.New(holder), dibs.New(waiter)
	t.Cleanup(func() { first.Close(); second.Close() })
	l.first = Lock(t, first, name)
	context.AfterFunc(l.first.Context(), func() { l.told <- time.Now() })
	ctx := Within(t, 3*Generous)
	go func() {
		lease, err := second.Mutex(name).Lock(ctx)
		e := entry{at: time.Now(), err: err}
		if err == nil {
			e.fence = lease.Fence()
		}
		l.second <- e
	}()
	Eventually(t, "the second one waits", func() bool {
		state, err := first.Inspect(t.Context(), name)
		return err == nil && state.Waiting == 1
	})
	return l
}

// want checks what both were told, and when.
func (l *loss) want(promoted time.Time) {
	l.t.Helper()
	const soon, enter = 500 * time.Millisecond, time.Second
	l.machine.Begin()
	var told, entered time.Duration
	select {
	case at := <-l.told:
		told = at.Sub(promoted)
	case <-time.After(Generous):
		l.t.Fatal("the holder is not told that his lock is gone")
	}
	var lost *dibs.LostError
	if err := l.first.Err(); !errors.As(err, &lost) || lost.Why != dibs.Taken {
		l.t.Errorf("the holder is told %v, want that it was taken", err)
	}
	select {
	case e := <-l.second:
		entered = e.at.Sub(promoted)
		if e.err != nil || e.fence <= l.first.Fence() {
			l.t.Errorf("who waited has fence %d after %d, error %v", e.fence, l.first.Fence(), e.err)
		}
	case <-time.After(Generous):
		l.t.Fatal("who waited does not enter")
	}
	late := l.machine.Late()
	l.t.Logf("FIGURE after the promotion the holder was told in %v, and who waited entered in %v (control %v)", told, entered, late)
	if told > soon+late || entered > enter+late {
		l.t.Errorf("told after %v, entered after %v: want %v and %v (and %v for the busy machine)", told, entered, soon, enter, late)
	}
}
