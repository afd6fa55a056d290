//go:build linux

package goredisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// Every primitive, used as it should be, leaves nothing on the server.
func TestCleanUseLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"server", "cluster"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			b := setUpOn(t, where)
			locks, rival := b.joinOn(where), b.joinOn(where)
			for _, what := range []struct{ takes, waits string }{
				{"lock job", "lock job"},
				{"write job", "read job"},
				{"read job", "write job"},
				{"permits job 2 3", "permits job 2 3"},
				{"all job {job}2 {job}3", "all {job}2 {job}4"},
				{"all job k1 k2", "all k1 k3 k4"},
				{"lead job", "lead job"},
			} {
				l := b.take(locks, what.takes)
				waiter := b.queueFor(rival, what.waits)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if _, err := take(ctx, locks, what.waits); err == nil {
					t.Fatalf("%s: it does not wait", what.waits)
				}
				cancel()
				b.unlock(l)
				b.unlock(b.entered(waiter).lease)
				b.eventually("nothing is left of "+what.takes, func() bool { return len(b.left()) == 0 })
			}

			rw := locks.RWMutex(job)
			l := b.take(locks, "write job")
			reader := b.queueFor(rival, "read job")
			if err := rw.Downgrade(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			b.unlock(b.entered(reader).lease)
			if err := rw.TryUpgrade(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			b.unlock(l)
			b.nothingLeft()

			for _, what := range []string{"lock job", "read job", "permits job 1 3"} {
				l = b.take(locks, what)
				if broke, err := rival.Revoke(t.Context(), job, l.Fence()); err != nil || !broke {
					t.Fatalf("break %s: %t, %v", what, broke, err)
				}
				b.nothingLeft()
			}

			const every = 200 * time.Millisecond
			for range 3 {
				ran, err := locks.Once(job, every).Do(t.Context(), func(context.Context) error { return nil })
				if err != nil || !ran {
					t.Fatalf("once: %t, %v", ran, err)
				}
				if again, err := rival.Once(job, every).Do(t.Context(), func(context.Context) error { return nil }); err != nil || again {
					b.standstill(every / 2)
					t.Fatalf("once, a second time: %t, %v", again, err)
				}
				b.ends(every)
				b.eventually("the interval is over", func() bool { return len(b.left()) == 0 })
			}
		})
	}
}

func setUpOn(t *testing.T, where string) *bed {
	t.Helper()
	if where == "cluster" {
		return setUpCluster(t)
	}
	return setUp(t)
}

func (b *bed) joinOn(where string, options ...dibs.Option) *dibs.Client {
	b.t.Helper()
	if where == "cluster" {
		return b.joinCluster(options...)
	}
	return b.join(b.server.Addr(), options...)
}

// What is kept taken for a while after it was given back ends then, whoever held and
// however it came by it, and what belongs to it not before.
func TestKeptNamesEnd(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	locks, rival := b.join(b.server.Addr()), b.join(b.server.Addr())
	const keep = 2 * time.Minute
	for i, what := range []string{"lock %s", "write %s", "read %s", "permits %s 1 3"} {
		name := fmt.Sprintf("kept%d", i)
		key := "lock:" + name
		what = fmt.Sprintf(what, name)
		first := b.take(rival, fmt.Sprintf("permits %s 3 3", name))
		waiter := make(chan entry, 1)
		waits := make(chan struct{})
		ctx := deadline(t, generous)
		go func() {
			l, err := take(ctx, locks, what, dibs.MinHold(keep), dibs.Observe(dibs.Hooks{Waiting: func(dibs.Waiting) { close(waits) }}))
			waiter <- entry{l, err, time.Now()}
		}()
		b.happens("it waits", waits)
		b.unlock(first)
		b.unlock(b.entered(waiter).lease)
		lock, _ := b.call("PTTL", key).(int64)
		signs, _ := b.call("PTTL", "{"+key+"}:dibs:meta").(int64)
		if lock < keep.Milliseconds()-int64(generous/time.Millisecond) || lock > keep.Milliseconds() {
			t.Errorf("%s: kept for %d ms, want %v", what, lock, keep)
		}
		if holders, _ := b.call("PTTL", "{"+key+"}:dibs:holders").(int64); b.isShared(key) && min(signs, holders) < lock {
			t.Errorf("%s: who shares the lock, or what they weigh, is forgotten %d ms before they end", what, lock-min(signs, holders))
		}
		b.ends(keep)
	}
}

// What processes leave that die while they hold and while they wait ends by itself:
// locks with their leases, queues within a minute, and signs within both. Only the
// floors of the fences stay.
func TestCrashesLeaveNothingForEver(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	for _, where := range []string{"server", "cluster"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			b := setUpOn(t, where)
			names := []string{"m", "w", "r", "p", "a1", "a2", "{a}3", "{a}4", "e"}
			takes := []string{"lock m", "write w", "read r", "permits p 2 3", "all a1 a2", "all {a}3 {a}4", "lead e"}
			waits := []string{"lock m", "read w", "write r", "permits p 2 3", "all a2 a1", "all {a}4 {a}3", "lead e"}
			o := orders{Role: "keep", TTL: lease, Cluster: where == "cluster"}

			// Those who only hold: when the leases are over, nothing is left but signs.
			holder := b.spawn(o)
			for i, what := range takes {
				holder.takes(fmt.Sprint(i), what)
			}
			holder.tell("once o o 1s")
			holder.has("o")
			holder.expect("renewed")
			b.ends(lease)
			b.begin()
			killed := time.Now()
			holder.kill()
			b.eventually("the leases are over", func() bool { return len(b.leftBut(":dibs:meta", ":dibs:holders")) == 0 })
			b.within("holders killed: only signs are left after", time.Since(killed), lease+20*time.Millisecond)
			b.ends(lease)

			// Those who hold and those who wait.
			holder, waiter := b.spawn(o), b.spawn(o)
			for i, what := range takes {
				holder.takes(fmt.Sprint(i), what)
				waiter.waitsFor(fmt.Sprint(i), waits[i])
			}
			holder.expect("renewed")
			b.ends(lease)
			waiter.kill()
			holder.kill()
			b.ends(lease)
			b.eventually("the leases are over", func() bool { return len(b.leftBut(":dibs:meta", ":dibs:holders", ":dibs:queue")) == 0 })
			b.ends(lease)
			if len(b.leftBut(":dibs:meta", ":dibs:holders")) == 0 {
				t.Error("no queue is left: nothing was seen of what the dead leave")
			}

			// Who comes next clears it all up.
			locks := b.joinOn(where)
			b.eventually("the dead are forgotten", func() bool {
				for _, name := range names {
					b.unlock(b.take(locks, "lock "+name))
				}
				return len(b.left()) == 0
			})
			floors, _ := b.server.MustCmd(t, "KEYS", "dibs:fence:*").([]any)
			if len(floors) > 1+len(names)+2 {
				t.Errorf("%d floors for %d names", len(floors), len(names))
			}
		})
	}
}

// leftBut is left without the keys that end so.
func (b *bed) leftBut(suffixes ...string) []string {
	b.t.Helper()
	var left []string
next:
	for _, k := range b.left() {
		for _, suffix := range suffixes {
			if strings.HasSuffix(k, suffix) {
				continue next
			}
		}
		left = append(left, k)
	}
	return left
}
