package etcdstore

import (
	"slices"
	"testing"
	"time"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := newIDs()
	first, second := i.unused("a", now), i.unused("a", now)
	if first == second || first != i.unused("b", now) {
		t.Fatalf("IDs %q and %q: want different ones for each entry, and the same ones for each name", first, second)
	}
	i.give("a", first)
	other := newIDs()
	i.give("a", other.id(0))
	if again, third := i.unused("a", now), i.unused("a", now); again != first || third == first || third == second {
		t.Errorf("after %q was released: %q, %q", first, again, third)
	}
}

func TestIDsAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := newIDs()
	taken := []string{i.unused("a", now), i.unused("a", now), i.unused("a", now)}
	for _, id := range taken {
		i.give("a", id)
	}
	if len(i.names) > 0 {
		t.Errorf("names without an entry: %v", i.names)
	}
	if again := i.unused("a", now); !slices.Contains(taken, again) {
		t.Errorf("ID %q, want one of %q", again, taken)
	}
}

func TestLateID(t *testing.T) {
	t.Parallel()
	now := time.Now()
	i := newIDs()
	late := i.unused("a", now)
	i.giveLater("a", late, now)
	if other := i.unused("a", now.Add(longestWay-1)); other == late {
		t.Errorf("ID %q again while a request can use it", late)
	}
	if again := i.unused("a", now.Add(longestWay)); again != late {
		t.Errorf("ID %q, want %q again", again, late)
	}
}
