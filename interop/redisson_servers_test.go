package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/goredisstore"
	"github.com/dibslock/dibs/internal/test/redistest"
	"github.com/dibslock/dibs/redisstore"
	"github.com/redis/go-redis/v9"
)

// startRedisson starts a Redisson driver on some servers, or skips the test without Java.
func startRedisson(t *testing.T, driver, url string) *external {
	t.Helper()
	value := os.Getenv(selectVariable)
	if value == "" {
		t.Skipf("SKIPPED: it downloads libraries of Java: set %s=available, or see drivers/README.md", selectVariable)
	}
	selection, err := selectLanguages(value, available)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range selection.languages {
		if l.name == "java" {
			dir, err := l.prepare(t)
			if selection.skips && errors.Is(err, errDownload) {
				t.Skipf("SKIPPED: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			return startExternal(t, dir, append(l.run, driver, url)...)
		}
	}
	t.Skip("SKIPPED: Java is not selected, or not installed")
	return nil
}

// redissonWith returns a dibs client in Redisson mode.
func redissonWith(t *testing.T, rdb redis.UniversalClient) *dibs.Client {
	t.Helper()
	locks := dibs.New(goredisstore.New(rdb, redisstore.Redisson()), dibs.Timeout(patience))
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return locks
}

// acquireByTurns lets both sides acquire a name, while the other side waits for it. Both TTLs are
// longer than the waiting time. So Redisson acquires the lock only if dibs notifies it.
func acquireByTurns(t *testing.T, locks *dibs.Client, theirs *external, name string, subscribers func(channel string) (int64, error)) {
	t.Helper()
	var dibsWaited, theirsWaited time.Duration
	type acquired struct {
		lease  *dibs.Lease
		theirs lock
		at     time.Time
		err    error
	}
	wait := make(chan acquired, 1)
	waitUntilTheyListen := func() {
		eventually(t, "the waiter listens", func() error {
			n, err := subscribers("redisson_lock__channel:{" + name + "}")
			if err == nil && n == 0 {
				err = errors.New("nobody listens")
			}
			return err
		})
	}
	lease, err := locks.Mutex(name).TryLock(t.Context(), dibs.TTL(longTTL))
	mustLease(t, lease, err)
	_, err = theirs.try(t.Context(), name, longTTL)
	wantHeld(t, "Redisson", err)

	go func() {
		l, err := theirs.lock(t.Context(), name, longTTL)
		wait <- acquired{theirs: l, at: time.Now(), err: err}
	}()
	waitUntilTheyListen()
	released := time.Now()
	mustUnlock(t, lease)
	a := <-wait
	must(t, a.theirs, a.err)
	theirsWaited = a.at.Sub(released)
	if _, err := locks.Mutex(name).TryLock(t.Context()); !errors.Is(err, dibs.ErrBusy) {
		t.Errorf("dibs: %v, want ErrBusy", err)
	}

	held := a.theirs
	go func() {
		lease, err := locks.Mutex(name).Lock(t.Context(), dibs.Wait(patience))
		wait <- acquired{lease: lease, at: time.Now(), err: err}
	}()
	waitUntilQueued(t, locks, name, 1) // it polls, and does not listen
	released = time.Now()
	wantUnlocked(t, "Redisson", held)
	a = <-wait
	mustLease(t, a.lease, a.err)
	dibsWaited = a.at.Sub(released)
	mustUnlock(t, a.lease)
	t.Logf("after a release, dibs has waited %v, and Redisson %v", dibsWaited, theirsWaited)
}

func TestRedissonOnCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	theirs := startRedisson(t, "redisson", "cluster://"+strings.Join(cluster.Addrs(), ","))
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer rdb.Close()
	locks := redissonWith(t, rdb)
	subscribers := func(channel string) (int64, error) { // for both kinds: older versions use the other kind
		var sum atomic.Int64
		err := rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			plain, err := node.PubSubNumSub(ctx, channel).Result()
			bySlot, slotErr := node.PubSubShardNumSub(ctx, channel).Result()
			sum.Add(plain[channel] + bySlot[channel])
			return errors.Join(err, slotErr)
		})
		return sum.Load(), err
	}
	for i := range 6 { // names in all servers' slots
		acquireByTurns(t, locks, theirs, fmt.Sprint("order:", i), subscribers)
	}
	work := load{counter: "counter", workers: 4, long: 5 * time.Second, ttl: patience, work: 3 * time.Millisecond}
	mine, others := hammerBoth(t, rdb, goHammerer{dibsLocker{locks}, rdb}, theirs, "hot", work, work)
	if mine.failures+others.failures > 0 {
		t.Errorf("calls have failed: of dibs %d, of Redisson %d", mine.failures, others.failures)
	}
	wantTurns(t, dibsLocker{locks}, theirs, "unseen", patience)
}

// RReadWriteLock, which treats an RLock with its name as its own, should wait for dibs' lock.
func TestRedissonReadWriteLock(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := redissonWith(t, rdb)
	for _, driver := range []string{"redisson-read", "redisson-write"} {
		theirs := startRedisson(t, driver, "redis://"+server.Addr())
		lease, err := locks.Mutex("n").TryLock(t.Context())
		mustLease(t, lease, err)
		_, err = theirs.try(t.Context(), "n", longTTL)
		wantHeld(t, driver, err)
		if err := lease.Extend(t.Context(), longTTL); err != nil {
			t.Errorf("%s: extend: %v", driver, err)
		}
		mustUnlock(t, lease)
		l, err := theirs.try(t.Context(), "n", longTTL)
		must(t, l, err)
		if _, err := locks.Mutex("n").TryLock(t.Context()); !errors.Is(err, dibs.ErrWrongType) {
			t.Errorf("%s: %v, want ErrWrongType", driver, err)
		}
		wantUnlocked(t, driver, l)
	}
}

// After a failover each side still finds the other's lock, and both can acquire again.
func TestRedissonAfterFailover(t *testing.T) {
	const ttl = 2 * patience // longer than the failover
	group := redistest.StartSentinels(t, 1, 3)
	theirs := startRedisson(t, "redisson", "sentinel://"+group.MasterName+"@"+strings.Join(group.Addrs(), ","))
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: group.MasterName, SentinelAddrs: group.Addrs()})
	defer rdb.Close()
	locks := redissonWith(t, rdb)
	lease, err := locks.Mutex("ours").TryLock(t.Context(), dibs.TTL(ttl))
	mustLease(t, lease, err)
	l, err := theirs.try(t.Context(), "theirs", longTTL)
	must(t, l, err)
	if n, err := rdb.Wait(t.Context(), 1, patience).Result(); n != 1 || err != nil {
		t.Fatalf("the replica has not acknowledged: %d, %v", n, err)
	}
	dead, err := group.KillMaster()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := group.WaitPromoted(dead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dibs reaches the new master, where Redisson holds", func() error {
		_, err := locks.Mutex("theirs").TryLock(t.Context())
		if errors.Is(err, dibs.ErrBusy) {
			return nil
		}
		return fmt.Errorf("try: %w", err)
	})
	eventually(t, "Redisson reaches the new master, where dibs holds", func() error {
		_, err := theirs.try(t.Context(), "ours", longTTL)
		if errors.Is(err, errHeld) {
			return nil
		}
		return fmt.Errorf("try: %w", err)
	})
	if err := lease.Extend(t.Context(), ttl); err != nil {
		t.Errorf("dibs: extend after the failover: %v", err)
	}
	mustUnlock(t, lease)
	wantUnlocked(t, "Redisson", l)
	acquireByTurns(t, locks, theirs, "both", func(channel string) (int64, error) {
		n, err := rdb.PubSubNumSub(t.Context(), channel).Result()
		return n[channel], err
	})
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
