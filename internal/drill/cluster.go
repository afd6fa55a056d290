package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/history"
	"github.com/dibslock/dibs/internal/redistest"
	"github.com/dibslock/dibs/redisstore"
)

// ClusterMoves lets slots move and a master die under load, and no caller may notice
// more of it than that it took longer.
func (o Opener) ClusterMoves(t *testing.T) {
	const moving = 100
	c := redistest.StartCluster(t, 3, 1)
	to := shard(t, c, 16383)
	// Many names that nobody else wants, and a few that all do. Who stays for long
	// came long before anything happens: what was granted in the moment in which a
	// master dies may be lost with it, and is not what this is about.
	storm := history.Storm{
		Workers: 16, Pace: 35 * time.Millisecond, Hold: work,
		Options: []dibs.Option{dibs.TTL(shortLived), dibs.Timeout(patient)},
	}
	bySlot := make(map[int]string)
	for i := range 3000 {
		name := fmt.Sprintf("order:%d", i)
		storm.Names = append(storm.Names, name)
		bySlot[redistest.Slot("lock:"+name)] = name
	}
	const shared = 30
	storm.Name = func(r *rand.Rand, names []string) string {
		if r.IntN(10) == 0 {
			return names[r.IntN(shared)]
		}
		return names[r.IntN(len(names))]
	}
	var slots []int
	var orphans []string
	for slot, name := range bySlot {
		switch { // a third of the slots is each master's
		case slot < 5000:
			orphans = append(orphans, name)
		case slot > 6000 && slot < 10000 && len(slots) < moving:
			slots = append(slots, slot)
		}
	}
	var stores []driver.Store
	for range 3 {
		stores = append(stores, o.Cluster(t, c.Addrs()))
	}
	stay := dibs.New(o.Cluster(t, c.Addrs()), dibs.Timeout(patient), dibs.TTL(10*time.Second))
	defer stay.Close()
	var long []*dibs.Lease
	for i := range shared {
		lease, err := stay.Mutex(fmt.Sprintf("stay:%d", i)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		long = append(long, lease)
	}
	machine := WatchMachine(t.Context(), to.Addr())
	w := storm.Start(stores...)
	calm := w.Now()
	time.Sleep(2 * time.Second) // of work in peace
	moved := make(chan error, 1)
	go func() { moved <- migrate(c, to, slots) }()
	dead, err := c.KillMaster(0)
	if err != nil {
		t.Fatal(err)
	}
	killed := w.Now()
	machine.Begin()
	_, failover, err := c.WaitFailover(dead)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	over := w.Now()
	v := judge(w.Stop(), over)
	recovery, ok := v.nextAsked(killed, orphans)
	t.Logf("FIGURE %.0f entries a second in peace, %.0f while %d slots moved and a master died; failover %v, next entry in one of its slots %v after its death; %d double holds, %d errors, %d lost",
		v.rate(calm, killed), v.rate(killed, over), len(slots), failover, recovery, len(v.doubles), len(v.errors), v.lost)
	if late := machine.Late(); !ok || recovery > failover+time.Second+late {
		t.Errorf("recovery %v, failover %v, control %v", recovery, failover, late)
	}
	for _, lease := range long {
		if err := lease.Err(); err != nil {
			t.Errorf("a lease that its replica had: %v", err)
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	}
	v.wantNoDoubles(t)
	v.wantFences(t)
	v.wantNoErrors(t)
}

// migrate moves slots one by one. While the cluster knows of a dead master and has no
// other one it refuses that, too.
func migrate(c *redistest.Cluster, to *redistest.Server, slots []int) error {
	end := time.Now().Add(30 * time.Second)
	for _, slot := range slots {
		for err := c.Migrate(to, slot); err != nil; err = c.Migrate(to, slot) {
			if owner, _ := c.MasterOf(slot); owner == to {
				break
			}
			if time.Now().After(end) {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// shard returns the master of a slot.
func shard(t *testing.T, c *redistest.Cluster, slot int) *redistest.Server {
	t.Helper()
	s, err := c.MasterOf(slot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ClusterLoss is SentinelLoss in a cluster, for the locks of each master: they die one
// after another, so also those to which nobody listens.
func (o Opener) ClusterLoss(t *testing.T) {
	for _, name := range []string{"order:1", "order:2", "order:7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1)
			open := func() driver.Store { return o.Cluster(t, c.Addrs()) }
			slot := redistest.Slot("lock:" + name)
			master := shard(t, c, slot)
			lives := shard(t, c, (slot+8192)%16384)
			l := newLoss(t, WatchMachine(t.Context(), lives.Addr()), open(), open(), name)
			for _, node := range c.Nodes() {
				if replicates(t, node, master) {
					forget(t, node)
				}
			}
			dead, err := c.KillMaster(slot)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.WaitFailover(dead); err != nil {
				t.Fatal(err)
			}
			l.want(time.Now())
		})
	}
}

// replicates reports whether a node is a replica of a master.
func replicates(t *testing.T, node, master *redistest.Server) bool {
	t.Helper()
	role, _ := node.MustCmd(t, "ROLE").([]any)
	if len(role) < 3 || role[0] != "slave" {
		return false
	}
	return fmt.Sprintf("%v:%v", role[1], role[2]) == master.Addr()
}

// ClusterSlotOnItsWay leaves a slot between two masters for longer than a lease lives,
// and than all that is kept of one, with its keys on this side or on the other: who holds
// goes on holding, and a call that needs what is on both sides fails within its time, or
// waits until the slot has arrived. What is held then is what was held before. On a
// machine on which a lease of a slot that stays is lost, too, leases live longer.
func (o Opener) ClusterSlotOnItsWay(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	const tries = 3
	for try, ttl := 1, 600*time.Millisecond; !o.slotOnItsWay(t, c, ttl, try == tries); try, ttl = try+1, 3*ttl {
		t.Logf("a lease of %v was lost where nothing moves", ttl)
	}
}

// slotOnItsWay returns false if nothing can be learnt.
func (o Opener) slotOnItsWay(t *testing.T, c *redistest.Cluster, ttl time.Duration, last bool) bool {
	t.Helper()
	const name = "order:42"
	key := "lock:" + name
	config, seats := "{"+key+"}:config", "{"+key+"}:seats"
	slot := redistest.Slot(key)
	from := shard(t, c, slot)
	to := c.Nodes()[slices.IndexFunc(c.Nodes(), func(s *redistest.Server) bool { return s != from })]
	open := func() *dibs.Client {
		locks := dibs.New(o.Cluster(t, c.Addrs()), dibs.TTL(ttl), dibs.Timeout(ttl/3))
		t.Cleanup(func() { locks.Close() })
		return locks
	}
	locks, calm := open(), open()
	leases := []*dibs.Lease{
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return locks.Mutex(name).Lock(ctx) }),
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return locks.RWMutex(config).RLock(ctx) }),
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return locks.Semaphore(seats, 4).Acquire(ctx, 2) }),
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return locks.Semaphore(seats, 4).Acquire(ctx, 1) }),
	}
	var controls []*dibs.Lease
	for i := 0; len(controls) < 2; i++ { // one on each side
		stays := fmt.Sprint("stays:", i)
		if m := shard(t, c, redistest.Slot("lock:"+stays)); m == []*redistest.Server{from, to}[len(controls)] {
			controls = append(controls, Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return calm.Mutex(stays).Lock(ctx) }))
		}
	}
	way, err := c.OpenSlot(slot, to)
	if err != nil {
		t.Fatal(err)
	}
	ended := func(of []*dibs.Lease) (err error) {
		for _, lease := range of {
			err = errors.Join(err, lease.Err())
		}
		return err
	}
	useless := false
	// The minute for which keys outlive their last use is over soon.
	hurry := func() {
		soon := fmt.Sprint((2 * ttl).Milliseconds())
		for _, side := range []*redistest.Server{from, to} {
			conn := redistest.Dial(side.Addr())
			for _, key := range []string{"lock:" + config, "lock:" + seats} {
				for _, suffix := range []string{"::dibs:holders", "::dibs:meta"} {
					var replies [2]redisstore.Reply // one side has it
					conn.Do(t.Context(), []redisstore.Cmd{{"ASKING"}, {"PEXPIRE", key + suffix, soon}}, replies[:])
				}
			}
			conn.Close()
		}
	}
	keep := func(where string) {
		t.Helper()
		hurry()
		time.Sleep(3 * ttl)
		switch err := ended(leases); {
		case err != nil && ended(controls) != nil && last:
			t.Skipf("SKIPPED: a lease of %v is lost where nothing moves, too", ttl)
		case err != nil && ended(controls) != nil:
			useless = true
		case err != nil:
			t.Errorf("%s: %v", where, err)
		}
	}
	keep("before it moves")
	for _, step := range []struct{ what, suffix string }{{"the locks", ""}, {"the signs", "::dibs:meta"}, {"the holders", "::dibs:holders"}} {
		keys := []string{"lock:" + config + step.suffix, "lock:" + seats + step.suffix}
		if step.suffix == "" {
			keys = append(keys, key)
		}
		if err := way.Move(keys...); err != nil {
			t.Fatal(err)
		}
		keep("with " + step.what + " moved and the slot not")
	}
	other := locks.Mutex("{" + key + "}:other")
	if lease, err := other.TryLock(t.Context()); err == nil {
		t.Errorf("%v was granted on one of two sides", lease.Token())
	} else if !errors.Is(err, dibs.ErrUnavailable) {
		t.Error(err)
	}
	later := make(chan error, 1)
	ctx := Within(t, Generous)
	go func() {
		later <- other.Do(ctx, func(context.Context) error { return nil }, dibs.Timeout(patient))
	}()
	if err := way.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := <-later; err != nil {
		t.Errorf("after the slot has arrived: %v", err)
	}
	keep("on the other side")
	if !useless {
		leases = append(leases, wantWhatWasHeld(t, locks, config, seats)...)
	}
	for _, lease := range slices.Concat(leases, controls) {
		if err := lease.Unlock(); err != nil && !useless {
			t.Error(err)
		}
	}
	return !useless
}

// wantWhatWasHeld checks that a reader and three of four permits are held, takes the
// fourth, and returns its lease.
func wantWhatWasHeld(t *testing.T, locks *dibs.Client, config, seats string) []*dibs.Lease {
	t.Helper()
	fourth, err := locks.Semaphore(seats, 4).TryAcquire(t.Context(), 1, dibs.Timeout(patient))
	if err != nil {
		t.Errorf("the last of 4 permits: %v", err)
		return nil
	}
	if _, err := locks.Semaphore(seats, 4).TryAcquire(t.Context(), 1, dibs.Timeout(patient)); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("a fifth of 4 permits: %v", err)
	}
	if _, err := locks.RWMutex(config).TryLock(t.Context(), dibs.Timeout(patient)); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("a writer beside a reader: %v", err)
	}
	return []*dibs.Lease{fourth}
}

// ClusterDeadMaster lets a master die that has no replica: its names cannot be locked
// any more, and those of the other masters as well as before, though who asks for the
// dead ones never stops.
func (o Opener) ClusterDeadMaster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	var doomed, healthy []string
	for i := range 600 {
		name := fmt.Sprintf("order:%d", i)
		if redistest.Slot("lock:"+name) < 5000 { // a third of the slots is each master's
			doomed = append(doomed, name)
		} else if redistest.Slot("lock:"+name) > 6000 {
			healthy = append(healthy, name)
		}
	}
	store := o.Cluster(t, c.Addrs())
	begin := func(store driver.Store, names []string) *history.Weather {
		return history.Storm{Workers: 8, Names: names, Hold: func(*rand.Rand) time.Duration { return 0 }}.Start(store)
	}
	// The control is a store that nobody asks for what is dead.
	half := len(healthy) / 2
	dying, living, control := begin(store, doomed), begin(store, healthy[:half]), begin(o.Cluster(t, c.Addrs()), healthy[half:])
	calm, calmThere := living.Now(), control.Now()
	time.Sleep(time.Second) // of work in peace
	killed, killedThere := living.Now(), control.Now()
	if _, err := c.KillMaster(0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // of work in spite of it
	over, overThere := living.Now(), control.Now()
	v, there := judge(living.Stop(), over), judge(control.Stop(), overThere)
	dead := judge(dying.Stop(), over)
	before, after := v.rate(calm, killed), v.rate(killed, over)
	beforeThere, afterThere := there.rate(calmThere, killedThere), there.rate(killedThere, overThere)
	t.Logf("FIGURE a master is dead: %.0f entries a second on the others, %.0f before, and %.0f, %.0f before where nobody asks for it; %d errors, %d on the dead one",
		after, before, afterThere, beforeThere, len(v.errors), len(dead.errors))
	if after < before/2*min(afterThere/beforeThere, 1) {
		t.Error("a dead master slows the others down")
	}
	v.wantNoErrors(t)
}
