package interop

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

const (
	key = "order:42" // the key is the name: everybody's prefix is empty

	// Within this dibs finds out that somebody else has released a name: half a
	// claim TTL, and what a busy machine takes.
	recheck = driver.WaiterTTL / 2
	slack   = 5 * time.Second
)

func must(t *testing.T, l lock, err error) lock {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantTaken(t *testing.T, who string, err error) {
	t.Helper()
	if !errors.Is(err, errTaken) {
		t.Errorf("%s: error %v, want that it is taken", who, err)
	}
}

func wantUnlocked(t *testing.T, who string, l lock) {
	t.Helper()
	if ok, err := l.unlock(t.Context()); !ok || err != nil {
		t.Errorf("%s: unlock: %v, %v", who, ok, err)
	}
}

func (s site) wantValue(t *testing.T, want any) {
	t.Helper()
	if have := s.MustCmd(t, "GET", key); have != want {
		t.Errorf("the key holds %v, want %v", have, want)
	}
}

// pairs runs a test for each two kinds of which one is dibs.
func pairs(t *testing.T, test func(t *testing.T, s site, mine, theirs kind)) {
	s := open(t)
	for name, peer := range s.peers() {
		t.Run("dibs, "+name, func(t *testing.T) { test(t, s, s.kinds["dibs"], peer) })
		t.Run(name+", dibs", func(t *testing.T) { test(t, s, peer, s.kinds["dibs"]) })
	}
}

func TestLocksExcludeEachOther(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, s site, mine, theirs kind) {
		ctx := t.Context()
		l, err := mine.try(ctx, key, time.Minute)
		must(t, l, err)
		s.wantValue(t, l.value())
		for range 3 {
			_, err = theirs.try(ctx, key, time.Minute)
			wantTaken(t, "theirs", err)
		}
		s.wantValue(t, l.value())
		if ms := s.MustCmd(t, "PTTL", key).(int64); ms <= 0 || ms > time.Minute.Milliseconds() {
			t.Errorf("%d ms left of a minute", ms)
		}
		if ok, err := l.extend(ctx, time.Minute); !ok || err != nil {
			t.Errorf("extend: %v, %v", ok, err)
		}
		wantUnlocked(t, "mine", l)
		s.wantValue(t, nil)

		l, err = theirs.try(ctx, key, time.Minute)
		must(t, l, err)
		s.wantValue(t, l.value())
		wantUnlocked(t, "theirs", l)
	})
}

// Who extends or unlocks by a value that the key does not hold any more touches
// nothing.
func TestWrongTokenChangesNothing(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, s site, mine, theirs kind) {
		ctx := t.Context()
		for _, act := range []func(lock) (bool, error){
			func(l lock) (bool, error) { return l.extend(ctx, time.Hour) },
			func(l lock) (bool, error) { return l.unlock(ctx) },
		} {
			old, err := mine.try(ctx, key, time.Minute)
			must(t, old, err)
			s.MustCmd(t, "DEL", key)
			l, err := theirs.try(ctx, key, 30*time.Second)
			must(t, l, err)
			if ok, err := act(old); ok || err != nil {
				t.Errorf("an act on what is not mine: %v, %v", ok, err)
			}
			s.wantValue(t, l.value())
			if ms := s.MustCmd(t, "PTTL", key).(int64); ms <= 0 || ms > 30_000 {
				t.Errorf("%d ms left of 30 s", ms)
			}
			if ok, err := l.extend(ctx, 30*time.Second); !ok || err != nil {
				t.Errorf("extend: %v, %v", ok, err)
			}
			wantUnlocked(t, "theirs", l)
		}
	})
}

// An error of dibs, and its inspection, show the value that a peer has put there.
func TestDibsReportsTheForeignHolder(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, peer := range s.peers() {
		l, err := peer.try(t.Context(), key, time.Minute)
		must(t, l, err)
		_, err = s.dibs.Mutex(key).TryLock(t.Context())
		busy, ok := errors.AsType[*dibs.BusyError](err)
		if !ok || busy.Holder != l.value() || busy.Remaining <= time.Minute/2 || busy.Remaining > time.Minute {
			t.Errorf("%s: error %v, want one that tells %q and a minute", name, err, l.value())
		}
		state, err := s.dibs.Inspect(t.Context(), key)
		if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != l.value() || state.Holders[0].Remaining <= time.Minute/2 {
			t.Errorf("%s: %+v, %v", name, state, err)
		}
		if states, err := s.dibs.List(t.Context(), "order:*"); err != nil || len(states) != 1 || states[0].Name != key {
			t.Errorf("%s: list: %+v, %v", name, states, err)
		}
		wantUnlocked(t, name, l)
	}
}

// Foreign releases tell nobody. A waiter of dibs finds out by itself.
func TestDibsAcquiresAfterAForeignRelease(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redsync", "redislock", "bare"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			ctx := t.Context()
			l, err := s.kinds[name].try(ctx, key, time.Minute)
			must(t, l, err)
			entered := make(chan *dibs.Lease, 1)
			go func() {
				lease, err := s.dibs.Mutex(key).Lock(ctx)
				if err != nil {
					t.Errorf("dibs: %v", err)
				}
				entered <- lease
			}()
			s.awaitWaiting(t, 1)
			wantUnlocked(t, name, l)
			released := time.Now()
			lease := <-entered
			if took := time.Since(released); took > recheck+slack {
				t.Errorf("entered %v after the release, want %v", took, recheck)
			}
			s.wantValue(t, lease.Token())
			if err := lease.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// awaitWaiting waits until so many wait in the queue.
func (s site) awaitWaiting(t *testing.T, want int) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for {
		state, err := s.dibs.Inspect(t.Context(), key)
		if err == nil && state.Waiting == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v: want %d to wait", state, err, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A peer that has died costs its TTL, and not half a claim TTL more.
func TestDibsAcquiresWhenAForeignLockExpires(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, peer := range s.peers() {
		begin := time.Now()
		l, err := peer.try(t.Context(), key, 300*time.Millisecond)
		must(t, l, err)
		lease, err := s.dibs.Mutex(key).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < 290*time.Millisecond || took > 300*time.Millisecond+slack {
			t.Errorf("%s: entered after %v, want 300ms", name, took)
		}
		if ok, err := l.unlock(t.Context()); ok || err != nil {
			t.Errorf("%s: unlock of an expired lock: %v, %v", name, ok, err)
		}
		s.wantValue(t, lease.Token())
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// And the other way round: a dibs process that has died, here by a lease that is
// not renewed, costs the peers its TTL.
func TestPeersAcquireWhenALeaseExpires(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, peer := range s.peers() {
		begin := time.Now()
		lease, err := s.dibs.Mutex(key).TryLock(t.Context(), dibs.TTL(300*time.Millisecond), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		l, err := peer.lock(t.Context(), key, time.Minute)
		must(t, l, err)
		if took := time.Since(begin); took < 290*time.Millisecond || took > 300*time.Millisecond+slack {
			t.Errorf("%s: entered after %v, want 300ms", name, took)
		}
		if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("dibs: unlock of an expired lease: %v", err)
		}
		s.wantValue(t, l.value())
		wantUnlocked(t, name, l)
	}
}

// A lease is renewed for as long as it lasts, and a peer never gets in.
func TestPeersStayOutWhileDibsRenews(t *testing.T) {
	t.Parallel()
	s := open(t)
	lease, err := s.dibs.Mutex(key).TryLock(t.Context(), dibs.TTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	first := lease.Deadline()
	for end := time.Now().Add(30 * time.Second); lease.Deadline().Sub(first) < 3*time.Second && lease.Err() == nil; {
		if time.Now().After(end) {
			t.Fatalf("it ends at %v, and ended at %v at first", lease.Deadline(), first)
		}
		for name, peer := range s.peers() {
			if _, err := peer.try(t.Context(), key, time.Minute); !errors.Is(err, errTaken) && lease.Err() == nil {
				t.Fatalf("%s got in: %v", name, err)
			}
		}
		time.Sleep(pollEvery)
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
}

// A hand-off leaves no gap: whoever polls does not get between two of dibs.
func TestAHandOffLeavesNoGap(t *testing.T) {
	t.Parallel()
	const waiters = 50
	s := open(t)
	lease, err := s.dibs.Mutex(key).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var handedOn atomic.Int32
	var group, polls sync.WaitGroup
	for range waiters {
		group.Go(func() {
			err := s.dibs.Mutex(key).Do(t.Context(), func(context.Context) error {
				handedOn.Add(1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	s.awaitWaiting(t, waiters)
	for name, peer := range s.peers() {
		polls.Go(func() {
			l, err := peer.lock(t.Context(), key, time.Minute)
			if n := handedOn.Load(); err != nil || n != waiters {
				t.Errorf("%s got in after %d of %d in the queue: %v", name, n, waiters, err)
			}
			if err == nil {
				wantUnlocked(t, name, l)
			}
		})
	}
	time.Sleep(5 * pollEvery) // all of them poll by now
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
	group.Wait()
	polls.Wait()
}

// A lease can be freed by hand, with nothing but its token.
func TestScriptsReleaseALease(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, eval := range map[string]func(t *testing.T, token string) string{
		"EVAL": func(t *testing.T, token string) string {
			return strconv.FormatInt(s.MustCmd(t, "EVAL", unlockLua, "1", key, token).(int64), 10)
		},
		"redis-cli": func(t *testing.T, token string) string {
			bin, err := exec.LookPath("redis-cli")
			if err != nil {
				t.Skipf("SKIPPED: %v", err)
			}
			host, port, _ := strings.Cut(s.Addr(), ":")
			out, err := exec.CommandContext(t.Context(), bin, "-h", host, "-p", port, "--eval", "testdata/unlock.lua", key, ",", token).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return strings.TrimPrefix(strings.TrimSpace(string(out)), "(integer) ")
		},
	} {
		t.Run(name, func(t *testing.T) {
			lease, err := s.dibs.Mutex(key).TryLock(t.Context(), dibs.Label("by-hand"))
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range []string{"somebody", lease.Token()[1:], lease.Token() + "1"} {
				if reply := eval(t, other); reply != "0" {
					t.Errorf("unlock by %q: %s", other, reply)
				}
			}
			s.wantValue(t, lease.Token())
			if reply := eval(t, lease.Token()); reply != "1" {
				t.Errorf("unlock: %s", reply)
			}
			s.wantValue(t, nil)
			if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("unlock of what was freed by hand: %v, want ErrLost", err)
			}
		})
	}
}

// A lease that was freed by hand is found to be lost at its next renewal.
func TestRenewalFindsALeaseDeletedByHand(t *testing.T) {
	t.Parallel()
	s := open(t)
	const ttl = 600 * time.Millisecond
	lease, err := s.dibs.Mutex(key).TryLock(t.Context(), dibs.TTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	s.MustCmd(t, "EVAL", unlockLua, "1", key, lease.Token())
	select {
	case <-lease.Context().Done():
		lost, ok := errors.AsType[*dibs.LostError](context.Cause(lease.Context()))
		if !ok || lost.Reason != dibs.ReasonTaken {
			t.Errorf("lost: %v, want %s", lost, dibs.ReasonTaken)
		}
	case <-time.After(ttl + slack):
		t.Error("not told")
	}
}

// A key that somebody has set without an end is taken for ever, and told as such.
func TestAKeyThatNeverExpires(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	s.MustCmd(t, "SET", key, "the intern")
	for name, k := range s.kinds {
		_, err := k.try(ctx, key, time.Minute)
		wantTaken(t, name, err)
	}
	_, err := s.dibs.Mutex(key).Lock(ctx, dibs.Wait(100*time.Millisecond))
	busy, ok := errors.AsType[*dibs.BusyError](err)
	if !ok || busy.Remaining >= 0 || busy.Holder != "the intern" || !strings.Contains(err.Error(), "never expires") {
		t.Errorf("error %v, want one that says that the intern's key never expires", err)
	}
	state, err := s.dibs.Inspect(ctx, key)
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != "the intern" || state.Holders[0].Remaining >= 0 {
		t.Errorf("%+v, %v", state, err)
	}
	if ttl := s.MustCmd(t, "PTTL", key); ttl != int64(-1) {
		t.Errorf("PTTL %v now", ttl)
	}
	s.wantValue(t, "the intern")

	entered := make(chan error, 1)
	go func() { entered <- s.dibs.Mutex(key).Do(ctx, func(context.Context) error { return nil }) }()
	s.awaitWaiting(t, 1)
	s.MustCmd(t, "DEL", key)
	deleted := time.Now()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	if took := time.Since(deleted); took > recheck+slack {
		t.Errorf("entered %v after the key was deleted, want %v", took, recheck)
	}
}

// All kinds at once, four of each, on one key: one at a time, and each gets its
// turns. The others poll, and a queue that is never empty would keep them out for
// ever: so the workers of dibs, as all, have something else to do in between.
func TestUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		each = 4
		ttl  = 2 * time.Second
		hold = time.Millisecond
	)
	long := 5 * time.Second
	if testing.Short() {
		long = time.Second
	}
	think := func() time.Duration { return 20*time.Millisecond + rand.N(60*time.Millisecond) }
	s := open(t)
	var inside atomic.Int32
	var group sync.WaitGroup
	served := make(map[string]*atomic.Int32)
	begin := time.Now()
	for name, k := range s.kinds {
		turns := new(atomic.Int32)
		served[name] = turns
		for range each {
			group.Go(func() {
				for time.Since(begin) < long {
					asked := time.Now()
					l, err := k.lock(t.Context(), key, ttl)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%s: %d inside", name, n)
					}
					time.Sleep(rand.N(2 * hold))
					inside.Add(-1)
					turns.Add(1)
					if ok, err := l.unlock(t.Context()); err != nil || !ok {
						t.Errorf("%s: unlock: %v, %v, %v after it was asked for", name, ok, err, time.Since(asked))
					}
					time.Sleep(think())
				}
			})
		}
	}
	group.Wait()
	for name, turns := range served {
		if turns.Load() == 0 {
			t.Errorf("%s was never served", name)
		}
		t.Logf("%s: %d turns", name, turns.Load())
	}
	s.wantValue(t, nil)
}
