//go:build linux

package goredisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// Correct use of every primitive should leave no keys on the server.
func TestCleanUseLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"server", "cluster"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			b := setUpOn(t, where)
			locks, rival := b.newClientOn(where), b.newClientOn(where)
			for _, what := range []struct{ takes, waits string }{
				{"lock job", "lock job"},
				{"write job", "read job"},
				{"read job", "write job"},
				{"permits job 2 3", "permits job 2 3"},
				{"all job {job}2 {job}3", "all {job}2 {job}4"},
				{"all job k1 k2", "all k1 k3 k4"},
				{"lead job", "lead job"},
			} {
				l := b.acquire(locks, what.takes)
				waiter := b.enqueueFor(rival, what.waits)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if _, err := acquire(ctx, locks, what.waits); err == nil {
					t.Fatalf("%s: the call does not wait", what.waits)
				}
				cancel()
				b.unlock(l)
				b.unlock(b.awaitEntry(waiter).lease)
				b.eventually("no keys are left of "+what.takes, func() bool { return len(b.remainingKeys()) == 0 })
			}

			l := b.acquire(locks, "write job")
			reader := b.enqueueFor(rival, "read job")
			if err := l.Downgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.unlock(b.awaitEntry(reader).lease)
			if err := l.TryUpgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.unlock(l)
			b.wantNoKeys()

			for _, what := range []string{"lock job", "read job", "permits job 1 3"} {
				l = b.acquire(locks, what)
				if revoked, err := rival.Revoke(t.Context(), job, dibs.Holder{Fence: l.Fence()}, ""); err != nil || !revoked {
					t.Fatalf("revoke %s: %t, %v", what, revoked, err)
				}
				b.wantNoKeys()
			}

			const every = 200 * time.Millisecond
			for range 3 {
				if err := locks.Once(job, every).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Fatal("once:", err)
				}
				if err := rival.Once(job, every).Do(t.Context(), func(context.Context) error { return nil }); !errors.Is(err, dibs.ErrSkipped) {
					b.skipIfStalled(every / 2)
					t.Fatalf("once, again within the interval: %v, want ErrSkipped", err)
				}
				b.wantExpiry(every)
				b.eventually("the interval is over", func() bool { return len(b.remainingKeys()) == 0 })
			}
		})
	}
}

func setUpOn(t *testing.T, where string) *fixture {
	t.Helper()
	if where == "cluster" {
		return setUpCluster(t)
	}
	return setUp(t)
}

func (b *fixture) newClientOn(where string, options ...dibs.Option) *dibs.Client {
	b.t.Helper()
	if where == "cluster" {
		return b.newClusterClient(options...)
	}
	return b.newClient(b.server.Addr(), options...)
}

// A reserved name becomes free when its MinHold ends, whatever the primitive and however
// the lock was acquired. Its metadata does not expire earlier.
func TestReservedNamesExpire(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks, rival := b.newClient(b.server.Addr()), b.newClient(b.server.Addr())
	const minHold = 2 * time.Minute
	for i, what := range []string{"lock %s", "write %s", "read %s", "permits %s 1 3"} {
		name := fmt.Sprintf("reserved%d", i)
		key := "lock:" + name
		what = fmt.Sprintf(what, name)
		first := b.acquire(rival, fmt.Sprintf("permits %s 3 3", name))
		waiter := make(chan entry, 1)
		waits := make(chan struct{})
		ctx := deadline(t, generous)
		go func() {
			l, err := acquire(ctx, locks, what, dibs.MinHold(minHold), dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { close(waits) }}))
			waiter <- entry{l, err, time.Now()}
		}()
		b.await("the call waits", waits)
		b.unlock(first)
		b.unlock(b.awaitEntry(waiter).lease)
		lock, _ := b.call("PTTL", key).(int64)
		meta, _ := b.call("PTTL", "{"+key+"}:dibs:meta").(int64)
		if lock < minHold.Milliseconds()-int64(generous/time.Millisecond) || lock > minHold.Milliseconds() {
			t.Errorf("%s: reserved for %d ms, want %v", what, lock, minHold)
		}
		if holders, _ := b.call("PTTL", "{"+key+"}:dibs:holders").(int64); b.isShared(key) && min(meta, holders) < lock {
			t.Errorf("%s: the holders or their weights expire %d ms before the lock", what, lock-min(meta, holders))
		}
		b.wantExpiry(minHold)
	}
}

// If processes die while they hold and wait, their keys expire: locks with their leases, queues
// within a minute, metadata within the sum of both. Only the fence high-water marks remain.
func TestKeysOfCrashedProcessesExpire(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	for _, where := range []string{"server", "cluster"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			b := setUpOn(t, where)
			names := []string{"m", "w", "r", "p", "a1", "a2", "{a}3", "{a}4", "e"}
			held := []string{"lock m", "write w", "read r", "permits p 2 3", "all a1 a2", "all {a}3 {a}4", "lead e"}
			awaited := []string{"lock m", "read w", "write r", "permits p 2 3", "all a2 a1", "all {a}4 {a}3", "lead e"}
			o := childConfig{Role: "leases", TTL: lease, Cluster: where == "cluster"}

			// Holders only: when the leases have expired, only metadata is left.
			holder := b.spawn(o)
			for i, what := range held {
				holder.acquire(fmt.Sprint(i), what)
			}
			holder.send("once o o 1s")
			holder.awaitHeldID("o")
			holder.expect("renewed")
			b.wantExpiry(lease)
			b.begin()
			killed := time.Now()
			holder.kill()
			b.eventually("the leases have expired", func() bool { return len(b.remainingKeysExcept(":dibs:meta", ":dibs:holders")) == 0 })
			b.within("holders killed: only metadata is left after", time.Since(killed), lease+20*time.Millisecond)
			b.wantExpiry(lease)

			// Holders and waiters.
			holder, waiter := b.spawn(o), b.spawn(o)
			for i, what := range held {
				holder.acquire(fmt.Sprint(i), what)
				waiter.enqueue(fmt.Sprint(i), awaited[i])
			}
			holder.expect("renewed")
			b.wantExpiry(lease)
			waiter.kill()
			holder.kill()
			b.wantExpiry(lease)
			b.eventually("the leases have expired", func() bool { return len(b.remainingKeysExcept(":dibs:meta", ":dibs:holders", ":dibs:queue")) == 0 })
			b.wantExpiry(lease)
			if len(b.remainingKeysExcept(":dibs:meta", ":dibs:holders")) == 0 {
				t.Error("no queue is left: the keys of dead waiters were not checked")
			}

			// The next caller removes all these keys.
			locks := b.newClientOn(where)
			b.eventually("the dead waiters are removed", func() bool {
				for _, name := range names {
					b.unlock(b.acquire(locks, "lock "+name))
				}
				return len(b.remainingKeys()) == 0
			})
			fences, _ := b.server.MustCmd(t, "KEYS", "dibs:fence:*").([]any)
			if len(fences) > 1+len(names)+2 {
				t.Errorf("%d fence high-water marks for %d names", len(fences), len(names))
			}
		})
	}
}

// remainingKeysExcept returns the remaining keys except those with one of the suffixes.
func (b *fixture) remainingKeysExcept(suffixes ...string) []string {
	b.t.Helper()
	var left []string
next:
	for _, k := range b.remainingKeys() {
		for _, suffix := range suffixes {
			if strings.HasSuffix(k, suffix) {
				continue next
			}
		}
		left = append(left, k)
	}
	return left
}
