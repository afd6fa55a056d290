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
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore/redisconn"
)

// ClusterMoves moves slots and kills a master under load. Callers may see delays only.
func (o Opener) ClusterMoves(t *testing.T) {
	const moving = 100
	c := redistest.StartCluster(t, 3, 1)
	to := masterOf(t, c, 16383)
	// Many names without contention, and a few contended names. The long leases are acquired well
	// before anything happens: a lease granted when a master dies may be lost with it, which this
	// test does not cover.
	load := history.Workload{
		Workers: 16, Interval: 35 * time.Millisecond, Hold: shortWork,
		Options: []dibs.Option{dibs.TTL(shortTTL), dibs.Timeout(longTimeout)},
	}
	bySlot := make(map[int]string)
	for i := range 3000 {
		name := fmt.Sprintf("order:%d", i)
		load.Names = append(load.Names, name)
		bySlot[redistest.Slot("lock:"+name)] = name
	}
	const shared = 30
	load.Name = func(r *rand.Rand, names []string) string {
		if r.IntN(10) == 0 {
			return names[r.IntN(shared)]
		}
		return names[r.IntN(len(names))]
	}
	var slots []int
	var orphans []string
	for slot, name := range bySlot {
		switch { // each master serves a third of the slots
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
	idle := dibs.New(o.Cluster(t, c.Addrs()), dibs.Timeout(longTimeout), dibs.TTL(10*time.Second))
	defer idle.Close()
	var long []*dibs.Lease
	for i := range shared {
		lease, err := idle.Mutex(fmt.Sprintf("idle:%d", i)).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		long = append(long, lease)
	}
	machine := WatchMachine(t.Context(), to.Addr())
	w := load.Start(stores...)
	start := w.Now()
	time.Sleep(2 * time.Second) // without failures
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
	v := evaluate(w.Stop(), over)
	recovery, ok := v.nextRequested(killed, orphans)
	t.Logf("FIGURE %.0f locks per second before, %.0f while %d slots moved and a master died. Failover %v, next lock in one of its slots %v after its death; %d conflicts, %d errors, %d lost",
		v.rate(start, killed), v.rate(killed, over), len(slots), failover, recovery, len(v.conflicts), len(v.errors), v.lost)
	if late := machine.Late(); !ok || recovery > failover+time.Second+late {
		t.Errorf("recovery %v, failover %v, control %v", recovery, failover, late)
	}
	for _, lease := range long {
		if err := lease.Err(); err != nil {
			t.Errorf("a replicated lease: %v", err)
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	}
	v.wantNoConflicts(t)
	v.wantFences(t)
	v.wantNoErrors(t)
}

// migrate moves slots in sequence. It retries while the cluster rejects moves because a dead master
// has no successor yet.
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

// masterOf returns a slot's master.
func masterOf(t *testing.T, c *redistest.Cluster, slot int) *redistest.Server {
	t.Helper()
	s, err := c.MasterOf(slot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ClusterLoss is SentinelLoss in a cluster, for each master's locks. The masters die in sequence,
// including those without subscribers.
func (o Opener) ClusterLoss(t *testing.T) {
	for _, name := range []string{"order:1", "order:2", "order:7"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1)
			open := func() driver.Store { return o.Cluster(t, c.Addrs()) }
			slot := redistest.Slot("lock:" + name)
			master := masterOf(t, c, slot)
			lives := masterOf(t, c, (slot+8192)%16384)
			l := newLoss(t, WatchMachine(t.Context(), lives.Addr()), open(), open(), name)
			for _, node := range c.Nodes() {
				if replicates(t, node, master) {
					clearReplica(t, master, node)
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

// replicates reports whether a node is a master's replica.
func replicates(t *testing.T, node, master *redistest.Server) bool {
	t.Helper()
	role, _ := node.MustCmd(t, "ROLE").([]any)
	if len(role) < 3 || role[0] != "slave" {
		return false
	}
	return fmt.Sprintf("%v:%v", role[1], role[2]) == master.Addr()
}

// ClusterSlotOnItsWay leaves a slot between two masters for longer than a lease and all its keys
// live, with its keys on either side. Its leases should remain valid. A call that needs keys on
// both sides should fail in time, or wait until the move is complete. Afterwards the same leases
// should be held. If a lease is lost, the test is repeated with a longer TTL: on a busy machine, a
// redirected renewal takes long.
func (o Opener) ClusterSlotOnItsWay(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	const tries = 3
	for try, ttl := 1, 600*time.Millisecond; !o.migratingSlot(t, c, ttl, try == tries); try, ttl = try+1, 3*ttl {
		t.Logf("a lease of %v was lost: again with a longer one", ttl)
	}
}

// migratingSlot returns false if the result is not meaningful.
func (o Opener) migratingSlot(t *testing.T, c *redistest.Cluster, ttl time.Duration, last bool) bool {
	t.Helper()
	const name = "order:42"
	key := "lock:" + name
	config, permits := "{"+key+"}:config", "{"+key+"}:permits"
	slot := redistest.Slot(key)
	from := masterOf(t, c, slot)
	to := c.Nodes()[slices.IndexFunc(c.Nodes(), func(s *redistest.Server) bool { return s != from })]
	open := func() *dibs.Client {
		locks := dibs.New(o.Cluster(t, c.Addrs()), dibs.TTL(ttl), dibs.Timeout(ttl/3))
		t.Cleanup(func() { locks.Close() })
		return locks
	}
	locks, stable := open(), open()
	leases := []*dibs.Lease{
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return locks.Mutex(name).Lock(ctx) }),
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return locks.RWMutex(config).Reader().Lock(ctx) }),
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) {
			return locks.Semaphore(permits, 4).Permits(2).Lock(ctx)
		}),
		Obtain(t, func(ctx context.Context) (*dibs.Lease, error) {
			return locks.Semaphore(permits, 4).Permits(1).Lock(ctx)
		}),
	}
	var controls []*dibs.Lease
	for i := 0; len(controls) < 2; i++ { // one on each side
		stays := fmt.Sprint("stays:", i)
		if m := masterOf(t, c, redistest.Slot("lock:"+stays)); m == []*redistest.Server{from, to}[len(controls)] {
			controls = append(controls, Obtain(t, func(ctx context.Context) (*dibs.Lease, error) { return stable.Mutex(stays).Lock(ctx) }))
		}
	}
	migration, err := c.OpenSlot(slot, to)
	if err != nil {
		t.Fatal(err)
	}
	ended := func(of []*dibs.Lease) (err error) {
		for _, lease := range of {
			err = errors.Join(err, lease.Err())
		}
		return err
	}
	meaningless := false
	// Shorten the minute for which unused keys are kept.
	expireSoon := func() {
		soon := fmt.Sprint((2 * ttl).Milliseconds())
		for _, side := range []*redistest.Server{from, to} {
			conn := redistest.Dial(side.Addr())
			for _, key := range []string{"lock:" + config, "lock:" + permits} {
				for _, suffix := range []string{"::dibs:holders", "::dibs:meta"} {
					var replies [2]redisconn.Reply // one side stores it
					conn.Do(t.Context(), time.Time{}, []redisconn.Cmd{redisconn.Command("ASKING"), redisconn.Command("PEXPIRE", key+suffix, soon)}, replies[:])
				}
			}
			conn.Close()
		}
	}
	wantKept := func(where string) {
		t.Helper()
		if meaningless {
			return
		}
		expireSoon()
		time.Sleep(3 * ttl)
		switch err := ended(leases); {
		case err == nil:
		case !last: // on a busy machine a redirected renewal takes too long for a short TTL
			meaningless = true
		case ended(controls) != nil:
			t.Skipf("SKIPPED: a lease of %v is also lost in a slot that does not move", ttl)
		default:
			t.Errorf("%s: %v", where, err)
		}
	}
	wantKept("before it moves")
	for _, step := range []struct{ what, suffix string }{{"the locks", ""}, {"the metadata", "::dibs:meta"}, {"the holders", "::dibs:holders"}} {
		keys := []string{"lock:" + config + step.suffix, "lock:" + permits + step.suffix}
		if step.suffix == "" {
			keys = append(keys, key)
		}
		if err := migration.Move(keys...); err != nil {
			t.Fatal(err)
		}
		wantKept("with " + step.what + " moved but not the slot")
	}
	other := locks.Mutex("{" + key + "}:other")
	if lease, err := other.TryLock(t.Context()); err == nil {
		t.Errorf("%v was granted in a slot between two masters", lease.Token())
	} else if !errors.Is(err, dibs.ErrUnavailable) {
		t.Error(err)
	}
	later := make(chan error, 1)
	ctx := Within(t, Generous)
	go func() {
		later <- other.Do(ctx, func(context.Context) error { return nil }, dibs.Timeout(longTimeout))
	}()
	if err := migration.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := <-later; err != nil {
		t.Errorf("after the move: %v", err)
	}
	wantKept("on the other side")
	if !meaningless {
		leases = append(leases, wantHeld(t, locks, config, permits)...)
	}
	for _, lease := range slices.Concat(leases, controls) {
		if err := lease.Unlock(); err != nil && !meaningless {
			t.Error(err)
		}
	}
	return !meaningless
}

// wantHeld checks that a reader and three of four permits are held. It acquires the fourth permit
// and returns its lease.
func wantHeld(t *testing.T, locks *dibs.Client, config, permits string) []*dibs.Lease {
	t.Helper()
	fourth, err := locks.Semaphore(permits, 4).Permits(1).TryLock(t.Context(), dibs.Timeout(longTimeout))
	if err != nil {
		t.Errorf("the last of 4 permits: %v", err)
		return nil
	}
	if _, err := locks.Semaphore(permits, 4).Permits(1).TryLock(t.Context(), dibs.Timeout(longTimeout)); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("a fifth of 4 permits: %v", err)
	}
	if _, err := locks.RWMutex(config).Writer().TryLock(t.Context(), dibs.Timeout(longTimeout)); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("a writer beside a reader: %v", err)
	}
	return []*dibs.Lease{fourth}
}

// ClusterDeadMaster kills a master without a replica. Its names can no longer be locked. Names on
// the other masters are locked as fast as before, although other callers keep requesting dead
// names.
func (o Opener) ClusterDeadMaster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	var doomed, healthy []string
	for i := range 600 {
		name := fmt.Sprintf("order:%d", i)
		if redistest.Slot("lock:"+name) < 5000 { // each master serves a third of the slots
			doomed = append(doomed, name)
		} else if redistest.Slot("lock:"+name) > 6000 {
			healthy = append(healthy, name)
		}
	}
	store := o.Cluster(t, c.Addrs())
	begin := func(store driver.Store, names []string) *history.ActiveWorkload {
		return history.Workload{Workers: 8, Names: names, Hold: func(*rand.Rand) time.Duration { return 0 }}.Start(store)
	}
	// The control is a store without requests for the dead master.
	half := len(healthy) / 2
	dying, living, control := begin(store, doomed), begin(store, healthy[:half]), begin(o.Cluster(t, c.Addrs()), healthy[half:])
	start, startThere := living.Now(), control.Now()
	time.Sleep(time.Second) // without failures
	killed, killedThere := living.Now(), control.Now()
	if _, err := c.KillMaster(0); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // with a dead master
	over, overThere := living.Now(), control.Now()
	v, there := evaluate(living.Stop(), over), evaluate(control.Stop(), overThere)
	dead := evaluate(dying.Stop(), over)
	before, after := v.rate(start, killed), v.rate(killed, over)
	beforeThere, afterThere := there.rate(startThere, killedThere), there.rate(killedThere, overThere)
	t.Logf("FIGURE with a dead master: %.0f locks per second on the others, %.0f before; control %.0f, %.0f before; %d errors, %d on the dead master",
		after, before, afterThere, beforeThere, len(v.errors), len(dead.errors))
	if after < before/2*min(afterThere/beforeThere, 1) {
		t.Error("a dead master slows the others down")
	}
	v.wantNoErrors(t)
}
