//go:build unix

package localstore

import (
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// at returns a clock that a test sets.
func at(boot string, now *time.Duration) clock {
	return clock{boot, func() time.Duration { return *now }}
}

func openBy(t *testing.T, path string, c clock) *Store {
	t.Helper()
	s, err := open(path, c)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func state(t *testing.T, s *Store, name string) dibs.State {
	t.Helper()
	state, err := s.Inspect(t.Context(), name)
	must(t, err)
	return state
}

// After a restart of the machine nobody holds and nobody waits, whatever its clock says
// now, and fences go on growing.
func TestReboot(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	up := 100 * time.Hour
	before := openBy(t, path, at("one", &up))
	answer, err := before.Acquire(t.Context(), claimOn("n", "holder"))
	must(t, err)
	_, err = before.Acquire(t.Context(), claimOn("n", "waiter"))
	must(t, err)
	must(t, before.Close())

	same := openBy(t, path, at("one", &up))
	if st := state(t, same, "n"); st.Holding != 1 || st.Waiting != 1 {
		t.Fatalf("another process of this boot sees %+v", st)
	}
	soon := time.Second // by this clock the lease would have 100 hours left
	after := openBy(t, path, at("two", &soon))
	if st := state(t, after, "n"); st.Holding != 0 || st.Waiting != 0 || st.Fence != answer.Fence {
		t.Fatalf("after a restart: %+v", st)
	}
	takeAndFree(t, after, "n", answer.Fence)
	// If a process of the other boot is alive, it is on another machine.
	_, err = same.Acquire(t.Context(), claimOn("n", "far"))
	wantRefused(t, err, path, "one machine only")
}

// Fences grow though the wall clock was ahead when the last one was given out, and though
// their names are forgotten.
func TestFencesGrow(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	ahead := uint64(time.Now().Add(24 * time.Hour).UnixMicro())
	must(t, s.file.exec("update state set fence = ?", int64(ahead)))
	last := takeAndFree(t, s, "n", ahead)
	takeAndFree(t, openAt(t, path), "n", last)
	var rows int
	must(t, s.file.conn.QueryRowContext(t.Context(), "select count(*) from entries").Scan(&rows))
	if rows != 0 {
		t.Errorf("%d entries of names that nobody holds", rows)
	}
}

// A lease ends by the clock of the machine, to the nanosecond, and what nobody asks for
// any more is removed.
func TestExpiry(t *testing.T) {
	t.Parallel()
	now := time.Hour
	s := openBy(t, newFile(t), at("boot", &now))
	_, err := s.Acquire(t.Context(), claimOn("n", "holder"))
	must(t, err)
	_, err = s.Acquire(t.Context(), claimOn("left", "holder"))
	must(t, err)
	now += time.Minute - 1
	if st := state(t, s, "n"); st.Holding != 1 || st.Holders[0].Remaining != 1 {
		t.Errorf("%+v a nanosecond before the end", st)
	}
	now++
	if st := state(t, s, "n"); st.Holding != 0 {
		t.Errorf("%+v at the end", st)
	}
	takeAndFree(t, s, "other", 0)
	var rows int
	must(t, s.file.conn.QueryRowContext(t.Context(), "select count(*) from entries").Scan(&rows))
	if rows != 0 {
		t.Errorf("%d entries of the dead", rows)
	}
}

func TestBootClock(t *testing.T) {
	t.Parallel()
	c, err := bootClock()
	must(t, err)
	again, err := bootClock()
	must(t, err)
	if c.boot == "" || strings.ContainsAny(c.boot, " \n") || c.boot != again.boot {
		t.Errorf("boots %q and %q", c.boot, again.boot)
	}
	if a, b := c.now(), again.now(); a <= 0 || b < a {
		t.Errorf("%v, then %v", a, b)
	}
}
