package interop

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

const (
	key = "order:42" // also the name: all prefixes are empty

	patience = time.Minute // for a busy machine
)

func must(t *testing.T, l lock, err error) lock {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantHeld(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, errHeld) {
		t.Errorf("%s: error %v, want errHeld", what, err)
	}
}

func wantUnlocked(t *testing.T, what string, l lock) {
	t.Helper()
	if ok, err := l.unlock(t.Context()); !ok || err != nil {
		t.Errorf("%s: unlock: %v, %v", what, ok, err)
	}
}

func (s fixture) wantValue(t *testing.T, want any) {
	t.Helper()
	if have := s.MustCmd(t, "GET", key); have != want {
		t.Errorf("the key holds %v, want %v", have, want)
	}
}

// pairs runs a test for dibs and each peer as a pair, in both orders.
func pairs(t *testing.T, test func(t *testing.T, s fixture, mine, theirs locker)) {
	s := open(t)
	for name, peer := range s.peers() {
		t.Run("dibs, "+name, func(t *testing.T) { test(t, s, s.lockers["dibs"], peer) })
		t.Run(name+", dibs", func(t *testing.T) { test(t, s, peer, s.lockers["dibs"]) })
	}
}

func TestLocksExcludeEachOther(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, s fixture, mine, theirs locker) {
		ctx := t.Context()
		l, err := mine.try(ctx, key, time.Minute)
		must(t, l, err)
		s.wantValue(t, l.value())
		for range 3 {
			_, err = theirs.try(ctx, key, time.Minute)
			wantHeld(t, "theirs", err)
		}
		s.wantValue(t, l.value())
		if ms := s.MustCmd(t, "PTTL", key).(int64); ms <= 0 || ms > time.Minute.Milliseconds() {
			t.Errorf("PTTL is %d ms, want at most 1 min", ms)
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

// An extend or unlock with a value no longer in the key changes nothing.
func TestWrongTokenChangesNothing(t *testing.T) {
	t.Parallel()
	pairs(t, func(t *testing.T, s fixture, mine, theirs locker) {
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
				t.Errorf("with an old value: %v, %v", ok, err)
			}
			s.wantValue(t, l.value())
			if ms := s.MustCmd(t, "PTTL", key).(int64); ms <= 0 || ms > 30_000 {
				t.Errorf("PTTL is %d ms, want at most 30 s", ms)
			}
			if ok, err := l.extend(ctx, 30*time.Second); !ok || err != nil {
				t.Errorf("extend: %v, %v", ok, err)
			}
			wantUnlocked(t, "theirs", l)
		}
	})
}

// dibs' errors and inspections show the value in a peer's lock.
func TestDibsReportsTheForeignHolder(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, peer := range s.peers() {
		l, err := peer.try(t.Context(), key, time.Minute)
		must(t, l, err)
		_, err = s.dibs.Mutex(key).TryLock(t.Context())
		busy, ok := errors.AsType[*dibs.BusyError](err)
		if !ok || string(busy.Holder) != l.value() || busy.Remaining <= time.Minute/2 || busy.Remaining > time.Minute {
			t.Errorf("%s: error %v, want a BusyError with %q and 1 min", name, err, l.value())
		}
		state, err := s.dibs.Inspect(t.Context(), key)
		if err != nil || len(state.Holders) != 1 || string(state.Holders[0].Token) != l.value() || state.Holders[0].Remaining <= time.Minute/2 {
			t.Errorf("%s: %+v, %v", name, state, err)
		}
		var listed []string
		for state, err := range s.dibs.List(t.Context(), "order:*") {
			if err != nil {
				t.Errorf("%s: list: %v", name, err)
			}
			listed = append(listed, state.Name)
		}
		if !slices.Equal(listed, []string{key}) {
			t.Errorf("%s: list: %q, want %q", name, listed, key)
		}
		wantUnlocked(t, name, l)
	}
}

// Other libraries do not notify waiters. dibs' first waiter should poll.
func TestDibsAcquiresAfterAForeignRelease(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"redsync", "redislock", "bare"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			ctx := t.Context()
			l, err := s.lockers[name].try(ctx, key, longTTL)
			must(t, l, err)
			acquired := make(chan *dibs.Lease, 1)
			go func() {
				lease, err := s.dibs.Mutex(key).Lock(ctx, dibs.Wait(patience))
				if err != nil {
					t.Errorf("dibs: %v", err)
				}
				acquired <- lease
			}()
			s.waitForWaiters(t, 1)
			wantUnlocked(t, name, l)
			lease := <-acquired
			s.wantValue(t, valueOf(lease))
			if err := lease.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// waitForWaiters waits until the queue contains want waiters.
func (s fixture) waitForWaiters(t *testing.T, want int) {
	t.Helper()
	waitUntilQueued(t, s.dibs, key, want)
}

func waitUntilQueued(t *testing.T, locks *dibs.Client, name string, want int) {
	t.Helper()
	end := time.Now().Add(patience)
	for {
		state, err := locks.Inspect(t.Context(), name)
		if err == nil && state.Waiting == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v, %v: want %d waiters", state, err, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A dead peer should delay dibs until its TTL has passed.
func TestDibsAcquiresWhenAForeignLockExpires(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	s := open(t)
	for name, peer := range s.peers() {
		begin := time.Now()
		l, err := peer.try(t.Context(), key, ttl)
		must(t, l, err)
		lease, err := s.dibs.Mutex(key).Lock(t.Context(), dibs.Wait(patience))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < ttl-10*time.Millisecond {
			t.Errorf("%s: acquired after %v, want at least %v", name, took, ttl)
		}
		if ok, err := l.unlock(t.Context()); ok || err != nil {
			t.Errorf("%s: unlock of an expired lock: %v, %v", name, ok, err)
		}
		s.wantValue(t, valueOf(lease))
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// A dead dibs process, here a lease without renewal, should delay the peers by its TTL.
func TestPeersAcquireWhenALeaseExpires(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	s := open(t)
	for name, peer := range s.peers() {
		begin := time.Now()
		lease, err := s.dibs.Mutex(key).TryLock(t.Context(), dibs.TTL(ttl), dibs.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		l, err := peer.lock(t.Context(), key, time.Minute)
		must(t, l, err)
		if took := time.Since(begin); took < ttl-10*time.Millisecond {
			t.Errorf("%s: acquired after %v, want at least %v", name, took, ttl)
		}
		if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
			t.Errorf("dibs: unlock of an expired lease: %v", err)
		}
		s.wantValue(t, l.value())
		wantUnlocked(t, name, l)
	}
}

// While dibs renews a lease, no peer acquires the lock.
func TestPeersAreExcludedWhileDibsRenews(t *testing.T) {
	t.Parallel()
	s := open(t)
	lease, err := s.dibs.Mutex(key).TryLock(t.Context(), dibs.TTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	first := lease.Deadline()
	for end := time.Now().Add(patience); lease.Deadline().Sub(first) < 3*time.Second && lease.Err() == nil; {
		if time.Now().After(end) {
			t.Fatalf("the deadline is %v, and was %v: want 3s more", lease.Deadline(), first)
		}
		for name, peer := range s.peers() {
			if _, err := peer.try(t.Context(), key, time.Minute); !errors.Is(err, errHeld) && lease.Err() == nil {
				t.Fatalf("%s acquired the lock: %v", name, err)
			}
		}
		time.Sleep(pollEvery)
	}
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
}

// A hand-off should leave no gap in which a polling peer could acquire the lock.
func TestPollersCannotAcquireDuringAHandOff(t *testing.T) {
	t.Parallel()
	const waiters = 50
	s := open(t)
	lease, err := s.dibs.Mutex(key).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var handedOff atomic.Int32
	var group, polls sync.WaitGroup
	for range waiters {
		group.Go(func() {
			err := s.dibs.Mutex(key).Do(t.Context(), func(context.Context) error {
				handedOff.Add(1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	s.waitForWaiters(t, waiters)
	for name, peer := range s.peers() {
		polls.Go(func() {
			l, err := peer.lock(t.Context(), key, time.Minute)
			if n := handedOff.Load(); err != nil || n != waiters {
				t.Errorf("%s acquired the lock after %d of %d waiters: %v", name, n, waiters, err)
			}
			if err == nil {
				wantUnlocked(t, name, l)
			}
		})
	}
	time.Sleep(5 * pollEvery) // all peers poll by now
	if err := lease.Unlock(); err != nil {
		t.Error(err)
	}
	group.Wait()
	polls.Wait()
}

// A plain script should be able to release a lease with its key's value.
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
			for _, other := range []string{"somebody", string(lease.Token()), valueOf(lease)[1:], valueOf(lease) + "1"} {
				if reply := eval(t, other); reply != "0" {
					t.Errorf("unlock by %q: %s", other, reply)
				}
			}
			s.wantValue(t, valueOf(lease))
			if reply := eval(t, valueOf(lease)); reply != "1" {
				t.Errorf("unlock: %s", reply)
			}
			s.wantValue(t, nil)
			if err := lease.Unlock(); !errors.Is(err, dibs.ErrLost) {
				t.Errorf("unlock after a release by hand: %v, want ErrLost", err)
			}
		})
	}
}

// The next renewal should detect that a lease was released by hand.
func TestRenewalFindsALeaseDeletedByHand(t *testing.T) {
	t.Parallel()
	s := open(t)
	lease, err := s.dibs.Mutex(key).TryLock(t.Context(), dibs.TTL(renewedTTL))
	if err != nil {
		t.Fatal(err)
	}
	s.MustCmd(t, "EVAL", unlockLua, "1", key, valueOf(lease))
	wantLoss(t, lease, dibs.ReasonMissing)
}

// A key without a TTL stays locked until it is deleted. Errors and inspections report it.
func TestAKeyThatNeverExpires(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx := t.Context()
	s.MustCmd(t, "SET", key, "the intern")
	for name, k := range s.lockers {
		_, err := k.try(ctx, key, time.Minute)
		wantHeld(t, name, err)
	}
	_, err := s.dibs.Mutex(key).Lock(ctx, dibs.Wait(100*time.Millisecond))
	busy, ok := errors.AsType[*dibs.BusyError](err)
	if !ok || !busy.NeverExpires || busy.Holder != "the intern" || !strings.Contains(err.Error(), "never expires") {
		t.Errorf("error %v, want a BusyError for a key that never expires", err)
	}
	state, err := s.dibs.Inspect(ctx, key)
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Token != "the intern" || !state.Holders[0].NeverExpires {
		t.Errorf("%+v, %v", state, err)
	}
	if ttl := s.MustCmd(t, "PTTL", key); ttl != int64(-1) {
		t.Errorf("PTTL is %v, want -1", ttl)
	}
	s.wantValue(t, "the intern")

	acquired := make(chan error, 1)
	go func() {
		acquired <- s.dibs.Mutex(key).Do(ctx, func(context.Context) error { return nil }, dibs.Wait(patience))
	}()
	s.waitForWaiters(t, 1)
	s.MustCmd(t, "DEL", key)
	if err := <-acquired; err != nil {
		t.Error(err)
	}
}

// Four workers from each library lock the same key. They exclude each other, and each library
// acquires the lock. All workers pause after a release: the peers poll, and would never acquire
// the lock if dibs' queue were never empty.
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
	for name, k := range s.lockers {
		turns := new(atomic.Int32)
		served[name] = turns
		for range each {
			group.Go(func() {
				for time.Since(begin) < long {
					requested := time.Now()
					l, err := k.lock(t.Context(), key, ttl)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%s: %d holders at once", name, n)
					}
					time.Sleep(rand.N(2 * hold))
					inside.Add(-1)
					turns.Add(1)
					if ok, err := l.unlock(t.Context()); err != nil || !ok {
						t.Errorf("%s: unlock: %v, %v, %v after the request", name, ok, err, time.Since(requested))
					}
					time.Sleep(think())
				}
			})
		}
	}
	group.Wait()
	for name, turns := range served {
		if turns.Load() == 0 {
			t.Errorf("%s never acquired the lock", name)
		}
		t.Logf("%s: %d turns", name, turns.Load())
	}
	s.wantValue(t, nil)
}
