package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// ignoresContext is a store that ignores contexts.
type ignoresContext struct {
	*driver.Full
	inspect, list time.Duration
}

func (s ignoresContext) Inspect(_ context.Context, name string) (driver.State, error) {
	time.Sleep(s.inspect)
	return driver.State{Name: name}, nil
}

func (s ignoresContext) List(context.Context, string) ([]string, error) {
	time.Sleep(s.list)
	return nil, nil
}

// A silent store is found out within the timeout. A scan over many keys can take longer.
func TestListIsBounded(t *testing.T) {
	for _, c := range []struct{ inspect, list, want time.Duration }{
		{0, 2 * time.Minute, time.Minute}, {2 * time.Minute, 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := ignoresContext{driver.Complete(memstore.New()), c.inspect, c.list}
			_, err := Poller{s, time.Second}.Matching(t.Context(), "*")
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) || time.Since(began) != c.want {
				t.Errorf("want DeadlineExceeded after %v, have %v after %v", c.want, err, time.Since(began))
			}
			time.Sleep(2 * time.Minute) // until the store returns
		})
	}
}

// A scan takes at most a twentieth of the time. Between two scans, the last scan's names are
// read.
func TestSlowListsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		hold(t, store, "a")
		lists := 0
		s := scripted{Full: driver.Complete(store), list: func(string) ([]string, error) {
			time.Sleep(time.Second)
			lists++
			return []string{"a", "b"}, nil
		}}
		polls := collect(t.Context(), Poller{s, time.Second}, "*", time.Second, 30)
		if lists != 2 {
			t.Errorf("%d scans of 1s each in %v, want 2", lists, time.Since(polls[0].Began))
		}
		for _, p := range polls {
			wantNames(t, p, "a")
		}
		hold(t, store, "b")
		for p := range (Poller{s, time.Second}).Polls(t.Context(), "*", time.Second) {
			wantNames(t, p, "a", "b")
			break
		}
	})
}

// A scripted is a store with some test results.
type scripted struct {
	*driver.Full
	list    func(glob string) ([]string, error) // nil: the Store's
	inspect func(ctx context.Context, name string) error
}

func (s scripted) List(ctx context.Context, glob string) ([]string, error) {
	if s.list == nil {
		return s.Full.List(ctx, glob)
	}
	return s.list(glob)
}

func (s scripted) Inspect(ctx context.Context, name string) (driver.State, error) {
	if s.inspect != nil {
		if err := s.inspect(ctx, name); err != nil {
			return driver.State{}, err
		}
	}
	return s.Full.Inspect(ctx, name)
}

func (s scripted) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	return inspectEach(ctx, s, names)
}

// inspectEach inspects names separately.
func inspectEach(ctx context.Context, s driver.Store, names []string) ([]driver.State, error) {
	states := make([]driver.State, len(names))
	for i, name := range names {
		state, err := driver.Complete(s).Inspect(ctx, name)
		var wrong *driver.WrongTypeError
		if errors.As(err, &wrong) {
			state, err = wrong.State, nil
		}
		if err != nil {
			return nil, err
		}
		states[i] = state
	}
	return states, nil
}

// hold holds names in a store until the test ends.
func hold(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	locks := dibs.New(s)
	t.Cleanup(func() { locks.Close() })
	for _, name := range names {
		if _, err := locks.Mutex(name).TryLock(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func wantNames(t *testing.T, p Poll, want ...string) {
	t.Helper()
	if have := namesOf(p.States); p.Err != nil || !slices.Equal(have, want) {
		t.Errorf("want %q, have %q, %v", want, have, p.Err)
	}
}

// collect returns the first n polls.
func collect(ctx context.Context, p Poller, glob string, every time.Duration, n int) (all []Poll) {
	for poll := range p.Polls(ctx, glob, every) {
		if all = append(all, poll); len(all) == n {
			break
		}
	}
	return all
}

func TestPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		hold(t, store, "b", "a", "c")
		began := time.Now()
		polls := collect(t.Context(), Poller{store, time.Second}, "[ab]", time.Minute, 3)
		for i, p := range polls {
			wantNames(t, p, "a", "b")
			if at := began.Add(time.Duration(i) * time.Minute); !p.Began.Equal(at) || !p.Ended.Equal(at) {
				t.Errorf("poll %d began %v after the first one, and took %v", i, p.Began.Sub(began), p.Ended.Sub(p.Began))
			}
		}
	})
}

// A plain name is inspected, and never searched for in the keyspace.
func TestPollOfAPlainName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		hold(t, store, "a")
		s := scripted{Full: driver.Complete(store), list: func(string) ([]string, error) { return nil, errors.New("a scan") }}
		p := Poller{s, time.Second}
		wantNames(t, collect(t.Context(), p, "a", time.Second, 1)[0], "a")
		wantNames(t, collect(t.Context(), p, "free", time.Second, 1)[0])
		if _, err := p.Matching(t.Context(), strings.Repeat("x", driver.MaxName+1)); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("a name that is too long: want ErrInvalid, have %v", err)
		}
	})
}

// A name should belong to the next poll even if the store no longer lists it. After a failure the
// last success's names should count.
func TestPollsRememberNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		hold(t, store, "a", "b")
		lists := []func() ([]string, error){
			func() ([]string, error) { return []string{"b", "a"}, nil },
			func() ([]string, error) { return nil, errors.New("away") },
			func() ([]string, error) { return []string{"b"}, nil },
		}
		n := 0
		s := scripted{Full: driver.Complete(store), list: func(string) ([]string, error) { n++; return lists[n-1]() }}
		polls := collect(t.Context(), Poller{s, time.Second}, "*", time.Second, 3)
		wantNames(t, polls[0], "a", "b")
		if polls[1].Err == nil {
			t.Error("want the failure of List")
		}
		wantNames(t, polls[2], "a", "b")
	})
}

// A poll interrupted by the context's end should not be yielded.
func TestPollsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		hold(t, store, "a")
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		s := scripted{Full: driver.Complete(store), inspect: func(ctx context.Context, _ string) error {
			if n++; n == 3 {
				cancel()
			}
			return ctx.Err()
		}}
		began := time.Now()
		polls := collect(ctx, Poller{s, time.Second}, "a", time.Minute, 10)
		if len(polls) != 2 || time.Since(began) != 2*time.Minute {
			t.Errorf("want 2 polls and an end after 2m, have %d after %v", len(polls), time.Since(began))
		}
		time.AfterFunc(time.Second, cancel)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		collect(ctx, Poller{store, time.Second}, "a", time.Minute, 10)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the pause between two polls went on for %v, want 1s", took)
		}
	})
}

// A single part's failure must fail the poll.
func TestPollFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		hold(t, store, "a", "b")
		failure := &driver.UnavailableError{Op: "inspect"}
		s := scripted{Full: driver.Complete(store), inspect: func(_ context.Context, name string) error {
			if name == "b" {
				return failure
			}
			return nil
		}}
		if states, err := (Poller{s, time.Second}).Matching(t.Context(), "*"); !errors.Is(err, driver.ErrUnavailable) || states != nil {
			t.Errorf("want ErrUnavailable, have %v, %v", states, err)
		}
	})
}

// A foreign lock should be part of a poll, whatever its type. Data should not, except where a
// string makes a name with a prefix unavailable.
func TestPollOfForeignLocks(t *testing.T) {
	one := []driver.Holder{{Token: "t"}}
	states := map[string]struct {
		state driver.State
		err   bool
	}{
		"bare":     {driver.State{Holders: one, Foreign: &driver.Foreign{Key: "bare", Lock: false}}, false},
		"data":     {driver.State{Foreign: &driver.Foreign{Key: "data", Type: "hash"}}, true},
		"prefixed": {driver.State{Holders: one, Foreign: &driver.Foreign{Key: "lock:prefixed", Lock: false}}, false},
		"redisson": {driver.State{Holders: one, Foreign: &driver.Foreign{Key: "redisson", Type: "hash", Lock: true}}, true},
		"string":   {driver.State{Holders: one, Foreign: &driver.Foreign{Key: "string", Lock: true}}, false},
	}
	s := foreignStates{Full: driver.Complete(memstore.New()), inspect: func(name string) (driver.State, error) {
		c := states[name]
		c.state.Name = name
		if c.err {
			return driver.State{}, &driver.WrongTypeError{Op: "inspect", Name: name, State: c.state}
		}
		return c.state, nil
	}}
	s.names = slices.Collect(maps.Keys(states))
	p := Poller{s, time.Second}
	found, err := p.Matching(t.Context(), "*")
	wantNames(t, Poll{States: found, Err: err}, "prefixed", "redisson", "string")
	state, err := p.Inspect(t.Context(), "data")
	if !errors.Is(err, driver.ErrWrongType) || state.Foreign == nil || state.Foreign.Key != "data" {
		t.Errorf("data: %+v, %v", state, err)
	}
}

// foreignStates is a store with some test states.
type foreignStates struct {
	*driver.Full
	names   []string
	inspect func(name string) (driver.State, error)
}

func (s foreignStates) List(context.Context, string) ([]string, error) { return s.names, nil }

func (s foreignStates) Inspect(_ context.Context, name string) (driver.State, error) {
	return s.inspect(name)
}

func (s foreignStates) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	return inspectEach(ctx, s, names)
}

// withWaiter is a store whose names are free and have a waiter.
type withWaiter struct{ *driver.Full }

func (withWaiter) Inspect(_ context.Context, name string) (driver.State, error) {
	return driver.State{Name: name, Waiting: 1, Waiters: make([]driver.Waiter, 1)}, nil
}

func (s withWaiter) InspectAll(ctx context.Context, names []string) ([]driver.State, error) {
	return inspectEach(ctx, s, names)
}

// A name between two holders should be part of a poll.
func TestPollOfAFreeNameWithAWaiter(t *testing.T) {
	states, err := Poller{withWaiter{driver.Complete(memstore.New())}, time.Second}.Matching(t.Context(), "a")
	wantNames(t, Poll{States: states, Err: err}, "a")
}

// The names are inspected in parts, each within the timeout.
func TestInspectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make([]string, 2500)
		for i := range all {
			all[i] = fmt.Sprint("n", i)
		}
		var parts []int
		s := slowParts{Full: driver.Complete(memstore.New()), names: all, parts: &parts, took: 900 * time.Millisecond}
		if _, err := (Poller{s, time.Second}).Matching(t.Context(), "*"); err != nil || !slices.Equal(parts, []int{1000, 1000, 500}) {
			t.Errorf("parts %v, %v", parts, err)
		}
		s.took = 2 * time.Second
		began := time.Now()
		if _, err := (Poller{s, time.Second}).Matching(t.Context(), "*"); !errors.Is(err, driver.ErrUnavailable) || time.Since(began) != time.Second {
			t.Errorf("want ErrUnavailable after 1s, have %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Second) // until InspectAll returns
	})
}

// slowParts is a store whose InspectAll takes a time and finds nothing.
type slowParts struct {
	*driver.Full
	names []string
	parts *[]int
	took  time.Duration
}

func (s slowParts) List(context.Context, string) ([]string, error) { return s.names, nil }

func (s slowParts) InspectAll(_ context.Context, names []string) ([]driver.State, error) {
	time.Sleep(s.took)
	*s.parts = append(*s.parts, len(names))
	return make([]driver.State, len(names)), nil
}

// A panic in another goroutine becomes the caller's panic, with the first stack.
func TestPollerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := scripted{Full: driver.Complete(memstore.New()),
			list: func(string) ([]string, error) { panic("broken list") },
			inspect: func(_ context.Context, name string) error {
				if name == "a" {
					panic("broken inspection")
				}
				return nil
			},
		}
		for glob, want := range map[string]string{"*": "broken list\ngoroutine ", "a": "broken inspection\ngoroutine "} {
			func() {
				defer func() {
					if text, _ := recover().(string); !strings.HasPrefix(text, want) {
						t.Errorf("%s: want %q, have %s", glob, want, text)
					}
				}()
				_, _ = Poller{broken, time.Second}.Matching(t.Context(), glob)
			}()
		}
	})
}
