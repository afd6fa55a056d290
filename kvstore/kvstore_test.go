package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
	"github.com/dibslock/dibs/storetest"
)

func TestStore(t *testing.T) {
	open := func(*testing.T) driver.Store { return kvstore.New(newMemory()) }
	storetest.RunSynctest(t, open)
	storetest.RunTicketsSynctest(t, open)
}

// Conflicts, lost replies and lost connections change no result.
func TestFlakyBucket(t *testing.T) {
	storetest.RunSynctest(t, func(*testing.T) driver.Store { return kvstore.New(newFlaky(1)) })
}

// Many clients run random operations in real time, and all results are consistent.
func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, kvstore.New(newFlaky(1)), 1, 500)
}

func request(name, token string) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Token: token, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true}
}

func mustAcquire(t *testing.T, s driver.Store, r driver.AcquireRequest) driver.AcquireReply {
	t.Helper()
	reply, err := s.Acquire(t.Context(), r)
	if err != nil || !reply.Held {
		t.Fatalf("acquire %q: %+v, %v", r.Name, reply, err)
	}
	return reply
}

// A Swap must have no effect if it arrives after its client cancelled the request.
func TestLateSwap(t *testing.T) {
	for what, end := range map[string]func(*kvstore.Store) error{
		"cancel": func(s *kvstore.Store) error { return s.Cancel(t.Context(), request("n", "a")) },
		"release": func(s *kvstore.Store) error {
			_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "a"})
			return err
		},
		"extend": func(s *kvstore.Store) error {
			if errs := s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: "a", TTL: time.Minute}}); !errors.Is(errs[0], driver.ErrLost) {
				return fmt.Errorf("%w, want ErrLost", errs[0])
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := &delaying{memory: newMemory()}
			s := kvstore.New(b)
			if _, err := s.Acquire(t.Context(), request("n", "a")); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, errReply) {
				t.Fatalf("acquire: %v, want the lost reply", err)
			}
			if err := end(s); err != nil {
				t.Fatal(err)
			}
			if err := b.delayed(); !errors.Is(err, kvstore.ErrConflict) {
				t.Errorf("late: %v, want a conflict", err)
			}
			if state, err := s.Inspect(t.Context(), "n"); err != nil || state.Holding != 0 {
				t.Errorf("%+v, %v; want no holder", state, err)
			}
		})
	}
}

// A lost request is reported, and the client can repeat it.
func TestLostRequest(t *testing.T) {
	s := kvstore.New(&delaying{memory: newMemory()})
	if _, err := s.Acquire(t.Context(), request("n", "a")); !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
	mustAcquire(t, s, request("n", "a"))
}

// Unused keys are deleted, even after a crash, and fences still grow.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		s := kvstore.New(b)
		locks := dibs.New(s)
		defer locks.Close()
		var last uint64
		for i := range 20 {
			lease, err := locks.Mutex(fmt.Sprint("n", i)).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last = max(last, lease.Fence())
			if err := lease.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		mustAcquire(t, s, request("crashed", "holder"))
		if _, err := s.Acquire(t.Context(), request("crashed", "waiter")); err != nil {
			t.Fatal(err)
		}
		kept, err := locks.Mutex("kept").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if keys := b.keys(); !slices.Equal(keys, []string{"fence", "lock.kept"}) {
			t.Errorf("keys %q, want that of the lease and the fence", keys)
		}
		if err := kept.Err(); err != nil {
			t.Error(err)
		}
		b.setBack(time.Hour)
		if reply := mustAcquire(t, s, request("n7", "a")); reply.Fence <= last {
			t.Errorf("fence %d after %d", reply.Fence, last)
		}
	})
}

// An idle client must not sweep.
func TestIdleClientDoesNotSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		locks := dibs.New(kvstore.New(b))
		defer locks.Close()
		if err := locks.Mutex("n").Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if keys := b.keys(); !slices.Equal(keys, []string{"lock.n"}) {
			t.Errorf("keys %q, want that no sweep was made", keys)
		}
	})
}

// A queue with a thousand waiters should fit in a value of 512 KiB.
func TestSizeOfAQueue(t *testing.T) {
	const waiters, limit = 100, 512 << 10
	b := newMemory()
	s := kvstore.New(b)
	for i := range waiters {
		r := request("n", fmt.Sprintf("a-long-host-name.example.com:12345:%s:m-%d:label", strings.Repeat("x", 26), i))
		r.Client = strings.Join(strings.SplitN(r.Token, ":", 4)[:3], ":")
		if _, err := s.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	v, err := b.Get(t.Context(), "lock.n")
	if err != nil {
		t.Fatal(err)
	}
	if size := len(v.Bytes) / waiters * 1000; size > limit {
		t.Errorf("%d bytes for 1000 waiters, want %d at most", size, limit)
	}
}

// Several names are several groups, and a request takes a single group.
func TestOneNameAtATime(t *testing.T) {
	s := kvstore.New(newMemory())
	if groups := fmt.Sprint(s.Groups([]string{"b", "a", "b"})); groups != "[[a] [b]]" {
		t.Errorf("groups %s", groups)
	}
	r := request("a", "t")
	r.With = []string{"b"}
	if _, err := s.Acquire(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// Other programs' values are reported, and neither replaced nor deleted.
func TestValuesOfAnotherProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		values := map[string]string{
			"lock.door": `{"state":"closed"}`, "lock.n": `{"h":[{"t":""}]}`, "lock.text": "open",
			"inbox.alice": `{"a":1}`, "inbox.bob": "hello", "inbox.c": `{"m":[]}`,
		}
		for key, value := range values {
			b.mustSwap(t, key, []byte(value))
		}
		s := kvstore.New(b)
		locks := dibs.New(s)
		defer locks.Close()
		lease, err := locks.Mutex("busy").Lock(t.Context()) // the client sweeps
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"door", "n", "text"} {
			began := time.Now()
			_, err := locks.Mutex(name).Lock(t.Context())
			wantWrongType(t, name, err)
			if took := time.Since(began); took > 0 {
				t.Errorf("%s: the error came after %v", name, took)
			}
			_, err = s.Inspect(t.Context(), name)
			wantWrongType(t, name, err)
			_, err = s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: "a"})
			wantWrongType(t, name, err)
			errs := s.Extend(t.Context(), []driver.ExtendRequest{{Name: name, Token: "a", TTL: time.Minute}, {Name: "free", Token: "a", TTL: time.Minute}})
			wantWrongType(t, name, errs[0])
			if !errors.Is(errs[1], driver.ErrLost) {
				t.Errorf("extend of another name: %v, want ErrLost", errs[1])
			}
		}
		handOff(t, s, "m") // to client c
		for key, want := range values {
			if have, err := b.Get(t.Context(), key); err != nil || string(have.Bytes) != want {
				t.Errorf("%s: %q, %v; want %q", key, have.Bytes, err, want)
			}
		}
	})
}

// wantWrongType checks a name's error if its key holds another program's value.
func wantWrongType(t *testing.T, name string, err error) {
	t.Helper()
	var wrong *driver.WrongTypeError
	if !errors.As(err, &wrong) || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%s: %v, want a WrongTypeError", name, err)
		return
	}
	want := fmt.Sprintf("%q: key %q holds a value that is not a lock of dibs; nothing was changed; ", name, "lock."+name)
	if !strings.Contains(err.Error(), want) || wrong.Name != name {
		t.Errorf("%v, want %s", err, want)
	}
}

// A list should leave out other programs' values. Their states should have a description.
func TestListBesideValuesOfAnotherProgram(t *testing.T) {
	b := newMemory()
	s := kvstore.New(b)
	locks := dibs.New(s)
	defer locks.Close()
	b.mustSwap(t, "lock.data", []byte("open"))
	mustAcquire(t, s, request("held", "a"))
	var listed []string
	for state, err := range locks.List(t.Context(), "*") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, state.Name)
	}
	if !slices.Equal(listed, []string{"held"}) {
		t.Errorf("listed %q, want the lock", listed)
	}
	if names, err := s.List(t.Context(), "*"); err != nil || !slices.Equal(names, listed) {
		t.Errorf("listed %q, %v; want the lock", names, err)
	}
	states, err := s.InspectAll(t.Context(), []string{"data", "held"})
	if err != nil || states[0].Foreign == nil || states[0].Foreign.Key != "lock.data" || states[1].Holding != 1 {
		t.Errorf("%+v, %v; want a value of a wrong type and a lock", states, err)
	}
}

// Another program's fence mark is reported with its key, at once.
func TestFenceOfAnotherProgram(t *testing.T) {
	for _, value := range []string{"7", `{"fences":7}`} {
		b := newMemory()
		b.mustSwap(t, "fence", []byte(value))
		_, err := kvstore.New(b).Acquire(t.Context(), request("n", "a"))
		var refused *driver.UnavailableError
		if !errors.As(err, &refused) || !refused.Refused || !strings.Contains(err.Error(), `the value of key "fence" is not a fence mark`) {
			t.Errorf("%s: %v, want a refusal", value, err)
		}
	}
}

// handOff grants a name to a waiter whose client is c.
func handOff(t *testing.T, s driver.Store, name string) {
	t.Helper()
	held := request(name, "holder")
	held.Client = "h"
	mustAcquire(t, s, held)
	if reply, err := s.Acquire(t.Context(), request(name, "waiter")); err != nil || reply.Held {
		t.Fatalf("wait: %+v, %v", reply, err)
	}
	for _, token := range []string{"holder", "waiter"} {
		if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Token: token}); err != nil || !released {
			t.Fatalf("release of %s: %v, %v", token, released, err)
		}
	}
}

// A clock step at any time should end no lease and no queue entry, and the record should stay
// valid.
func TestClockStepsBack(t *testing.T) {
	for _, back := range []string{"300ms", "900ms", "1s", "1500ms", "2s", "5s"} {
		for _, pause := range []string{"0s", "250ms", "500ms", "900ms"} {
			t.Run(back+" after pauses of "+pause, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { stepBack(t, duration(t, back), duration(t, pause)) })
			})
		}
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func stepBack(t *testing.T, back, pause time.Duration) {
	b := newMemory()
	s := kvstore.New(b)
	mustAcquire(t, s, request("n", "holder"))
	wait := func() {
		t.Helper()
		for position, token := range []string{"first", "second"} {
			if reply, err := s.Acquire(t.Context(), request("n", token)); err != nil || reply.Held || reply.Position != position+1 {
				t.Fatalf("%s: %+v, %v; want position %d", token, reply, err, position+1)
			}
			time.Sleep(pause)
		}
	}
	wait()
	for range 2 { // the second request finds the first's record
		b.setBack(back)
		if errs := s.Extend(t.Context(), []driver.ExtendRequest{{Name: "n", Token: "holder", TTL: 2 * time.Minute}}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		wait()
	}
	state, err := s.Inspect(t.Context(), "n")
	if err != nil || state.Holding != 1 || state.Waiting != 2 {
		t.Fatalf("%+v, %v; want a holder and two waiters", state, err)
	}
	for _, w := range state.Waiters {
		if w.Waited < 0 {
			t.Errorf("waited %v", w.Waited)
		}
	}
	for _, token := range []string{"holder", "first", "second"} {
		if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: token}); err != nil || !released {
			t.Fatalf("release of %s: %v, %v", token, released, err)
		}
	}
}

// A sweep that cannot finish should still delete some names.
func TestSweepOfManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 5000 // reading them all takes longer than a sweep's timeout
		b := newMemory()
		s := kvstore.New(&slow{memory: b})
		for i := range names {
			b.mustSwap(t, fmt.Sprint("lock.n", i), []byte(`{"f":7,"u":1,"k":1}`))
		}
		locks := dibs.New(s, dibs.Timeout(time.Minute))
		defer locks.Close()
		lease, err := locks.Mutex("busy").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		if left := len(b.keys()); left > 10 {
			t.Errorf("%d keys are left", left)
		}
		if err := lease.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A holder that asks for waiters repeats its Swap at once, as for a release.
func TestHolderRepeatsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &conflicting{memory: newMemory()}
		s := kvstore.New(b)
		mustAcquire(t, s, request("n", "a"))
		b.conflicts = 14
		began := time.Now()
		if _, err := s.NotifyWanted(t.Context(), driver.WantedRequest{Name: "n", Token: "a", Client: "c"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}
