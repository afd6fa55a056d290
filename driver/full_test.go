package driver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
)

// small has the methods of driver.Store only.
type small struct{ driver.Store }

// counting is a decorator: it forwards everything, and counts releases.
type counting struct {
	*driver.Full
	releases int
}

func (s *counting) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	s.releases++
	return s.Store.Release(ctx, r)
}

// adding adds an interface that the store below lacks.
type adding struct{ *driver.Full }

func (adding) Revoke(context.Context, driver.RevokeRequest) (bool, error) { return true, nil }

func (a adding) Missing() []string {
	return slices.DeleteFunc(a.Full.Missing(), func(name string) bool { return name == "Revoker" })
}

var optional = []string{"Grouper", "Resizer", "Revoker", "WantedNotifier", "Inspector", "Lister", "FenceReserver", "Announcer", "ForeignRevoker"}

func TestMissing(t *testing.T) {
	decorated := func(s driver.Store) driver.Store { return &counting{Full: driver.Complete(s)} }
	for what, c := range map[string]struct {
		store driver.Store
		want  []string
	}{
		"all but two":             {memstore.New(), []string{"Announcer", "ForeignRevoker"}},
		"small":                   {small{memstore.New()}, optional},
		"decorated":               {decorated(memstore.New()), []string{"Announcer", "ForeignRevoker"}},
		"small, decorated twice":  {decorated(decorated(small{memstore.New()})), optional},
		"completed":               {driver.Complete(small{memstore.New()}), optional},
		"a decorator hides them":  {small{decorated(memstore.New())}, optional},
		"a decorator adds one":    {adding{driver.Complete(small{memstore.New()})}, slices.DeleteFunc(slices.Clone(optional), func(n string) bool { return n == "Revoker" })},
		"a decorator of no store": {&counting{}, nil},
	} {
		full := driver.Complete(c.store)
		if have := full.Missing(); !slices.Equal(have, c.want) {
			t.Errorf("%s: lacks %q, want %q", what, have, c.want)
		}
		for _, name := range optional {
			if full.Has(name) == slices.Contains(c.want, name) {
				t.Errorf("%s: has %s: %v", what, name, full.Has(name))
			}
		}
	}
}

// calls of the optional interfaces that have no substitute.
var calls = map[string]func(ctx context.Context, s *driver.Full) error{
	"Resizer": func(ctx context.Context, s *driver.Full) error {
		_, err := s.Resize(ctx, driver.AcquireRequest{Name: "n"})
		return err
	},
	"Revoker": func(ctx context.Context, s *driver.Full) error {
		_, err := s.Revoke(ctx, driver.RevokeRequest{Name: "n"})
		return err
	},
	"Inspector": func(ctx context.Context, s *driver.Full) error { _, err := s.Inspect(ctx, "n"); return err },
	"Lister": func(ctx context.Context, s *driver.Full) error {
		_, list := s.List(ctx, "*")
		_, all := s.InspectAll(ctx, []string{"n"})
		if list == nil || all == nil {
			return nil
		}
		return list
	},
	"WantedNotifier": func(ctx context.Context, s *driver.Full) error {
		_, err := s.NotifyWanted(ctx, driver.WantedRequest{Name: "n"})
		return err
	},
	"FenceReserver": func(ctx context.Context, s *driver.Full) error {
		_, err := s.ReserveFences(ctx, driver.FenceRequest{Name: "n"})
		return err
	},
	"ForeignRevoker": func(ctx context.Context, s *driver.Full) error {
		_, err := s.RevokeForeign(ctx, "n", driver.Foreign{})
		return err
	},
}

// The error of a missing interface says which store lacks what, also through decorators.
func TestUnsupported(t *testing.T) {
	for name, call := range calls {
		for what, s := range map[string]driver.Store{"small": small{memstore.New()}, "decorated": &counting{Full: driver.Complete(small{memstore.New()})}} {
			err := call(t.Context(), driver.Complete(s))
			var unsupported *driver.UnsupportedError
			if !errors.Is(err, driver.ErrInvalid) || !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &unsupported) {
				t.Errorf("%s, %s: %v", name, what, err)
				continue
			}
			if text := err.Error(); !strings.Contains(text, "driver_test.small is no driver."+name+": ") || !strings.Contains(text, "*driver.Full") {
				t.Errorf("%s, %s: %s", name, what, text)
			}
		}
	}
}

// A decorator's own methods are used, and the others are forwarded.
func TestDecorator(t *testing.T) {
	inner := memstore.New()
	s := &counting{Full: driver.Complete(inner)}
	full := driver.Complete(s)
	request := driver.AcquireRequest{Name: "n", Token: "t", Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Until: time.Now().Add(time.Minute)}
	if reply, err := full.Acquire(t.Context(), request); err != nil || !reply.Held {
		t.Fatalf("%+v, %v", reply, err)
	}
	if state, err := full.Inspect(t.Context(), "n"); err != nil || state.Holding != 1 {
		t.Errorf("%+v, %v", state, err)
	}
	if held, err := full.Release(t.Context(), driver.ReleaseRequest{Name: "n", Token: "t"}); err != nil || !held || s.releases != 1 {
		t.Errorf("%v, %v, %d releases of the decorator", held, err, s.releases)
	}
	if driver.Innermost(full) != driver.Store(inner) {
		t.Errorf("innermost: %T", driver.Innermost(full))
	}
}

// Without a Grouper, each name is a group, in an order that is the same for all clients.
func TestGroupsOfASmallStore(t *testing.T) {
	s := driver.Complete(small{memstore.New()})
	for _, names := range [][]string{{"b", "a", "c"}, {"c", "b", "a", "b"}} {
		if have := s.Groups(names); !slices.EqualFunc(have, [][]string{{"a"}, {"b"}, {"c"}}, slices.Equal) {
			t.Errorf("%q: %q", names, have)
		}
	}
	if have := s.Groups(nil); len(have) != 0 {
		t.Errorf("no names: %q", have)
	}
}

// inspecting is a store without notifications of waiters, whose states show them.
type inspecting struct {
	driver.Store
	driver.Inspector
}

// Without a WantedNotifier, the state says whether a request waits.
func TestWantedByState(t *testing.T) {
	inner := memstore.New()
	s := driver.Complete(inspecting{inner, inner})
	wanted := func(token string) bool {
		t.Helper()
		wanted, err := s.NotifyWanted(t.Context(), driver.WantedRequest{Name: "n", Token: token, Client: "c"})
		if err != nil {
			t.Fatal(err)
		}
		return wanted
	}
	for _, c := range []struct {
		acquires string
		want     bool
	}{{"holder", false}, {"waiter", true}} {
		r := driver.AcquireRequest{Name: "n", Token: c.acquires, Client: "c", TTL: time.Minute, Weight: 1, Limit: 1, Queue: true, Until: time.Now().Add(time.Minute)}
		if _, err := s.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if have := wanted("holder"); have != c.want {
			t.Errorf("after the %s: %v, want %v", c.acquires, have, c.want)
		}
	}
	if wanted("waiter") {
		t.Error("a token that does not hold is wanted")
	}
}
