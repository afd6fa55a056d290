//go:build unix

package localstore

import (
	"strings"
	"testing"
	"time"

	"github.com/dibslock/dibs/driver"
)

// clockAt returns a clock that shows *now.
func clockAt(boot string, now *time.Duration) clock {
	return clock{boot, func() time.Duration { return *now }}
}

func openWithClock(t *testing.T, path string, c clock) *Store {
	t.Helper()
	s, err := open(path, c)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func state(t *testing.T, s *Store, name string) driver.State {
	t.Helper()
	state, err := s.Inspect(t.Context(), name)
	must(t, err)
	return state
}

// otherBoot returns the clock of a machine started a second ago.
func otherBoot() (clock, *time.Duration) {
	soon := time.Second
	return clockAt("two", &soon), &soon
}

// A machine restart should remove the holders and waiters that ended with it, whatever its clock
// shows. Fences should keep growing.
func TestReboot(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	killed := startHolder(t, path, "1h")
	_, err := openAt(t, path).Acquire(t.Context(), requestOn("other", "mine"))
	must(t, err)
	before := state(t, openAt(t, path), "n")
	killed.kill()
	s := openAt(t, path)
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "other", Token: "mine"}); err != nil {
		t.Fatal(err)
	}
	c, _ := otherBoot()
	after := openWithClock(t, path, c)
	if st := state(t, after, "n"); st.Holding != 0 || st.Waiting != 0 || st.Fence < before.Fence {
		t.Fatalf("after a restart: %+v", st)
	}
	lockAndRelease(t, after, "n", before.Fence)
}

// A lease that survives its process must also survive a machine restart, until its TTL.
func TestRebootKeepsWhatOutlives(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s, err := Open(path, KeepUntilTTL())
	must(t, err)
	_, err = s.Acquire(t.Context(), requestOn("n", "holder"))
	must(t, err)
	must(t, s.Close())
	c, now := otherBoot()
	after := openWithClock(t, path, c)
	st := state(t, after, "n")
	if st.Holding != 1 || st.Holders[0].Remaining > time.Minute || st.Holders[0].Remaining < time.Second {
		t.Fatalf("after a restart: %+v", st)
	}
	*now += st.Holders[0].Remaining
	if st := state(t, after, "n"); st.Holding != 0 {
		t.Errorf("%+v after its TTL", st)
	}
}

// Opening the file with another boot ID should delete no valid lease: neither with the same clock,
// as in some containers, nor with another clock, as on another machine.
func TestOtherBootID(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func() clock{
		"the same clock": func() clock { c, _ := bootClock(); return clock{"container", c.now} },
		"another clock":  func() clock { c, _ := otherBoot(); return c },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			holder := startHolder(t, path, "1h")
			first := openAt(t, path)
			for range 3 {
				s, err := open(path, other())
				if err != nil {
					wantRefusedOpen(t, err, path)
				} else {
					answer, err := s.Acquire(t.Context(), requestOn("n", "other"))
					if err != nil || answer.Held {
						t.Fatalf("%+v, %v: want it held", answer, err)
					}
					must(t, s.Cancel(t.Context(), requestOn("n", "other")))
					must(t, s.Close())
				}
				if st := state(t, first, "n"); st.Holding != 1 {
					t.Fatalf("the holder's lease was removed: %+v", st)
				}
				lockAndRelease(t, first, "another", 0)
			}
			holder.writeLine("release")
			holder.readLine("released")
			lockAndRelease(t, openWithClock(t, path, other()), "n", 0)
		})
	}
}

func wantRefusedOpen(t *testing.T, err error, path string) {
	t.Helper()
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "one machine only") {
		t.Errorf("%v", err)
	}
}

// If a process on another machine holds a lease, its file locks are not visible here. The lease
// should last until its TTL.
func TestOtherMachine(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	killed := startHolder(t, path, "1h")
	killed.kill()
	must(t, openAt(t, path).file.exec("update state set machine = 'far'"))
	c, now := otherBoot()
	s := openWithClock(t, path, c)
	if st := state(t, s, "n"); st.Holding != 1 {
		t.Fatalf("%+v: its lease was deleted", st)
	}
	*now += time.Hour
	lockAndRelease(t, s, "n", 0)
}

// A file in format 1 must still work.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	s.file.outlive = true
	_, err := s.Acquire(t.Context(), requestOn("n", "holder"))
	must(t, err)
	must(t, s.Close())
	alter(t, path, "alter table state drop column since; alter table state drop column machine; pragma user_version = 1")
	if st := state(t, openAt(t, path), "n"); st.Holding != 1 {
		t.Errorf("%+v", st)
	}
	lockAndRelease(t, openAt(t, path), "m", 0)
}

// Fences should grow even if the wall clock was ahead at the last grant, and if their names no
// longer have an entry.
func TestFencesGrow(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	s := openAt(t, path)
	ahead := uint64(time.Now().Add(24 * time.Hour).UnixMicro())
	must(t, s.file.exec("update state set fence = ?", int64(ahead)))
	last := lockAndRelease(t, s, "n", ahead)
	lockAndRelease(t, openAt(t, path), "n", last)
	var rows int
	must(t, s.file.conn.QueryRowContext(t.Context(), "select count(*) from entries").Scan(&rows))
	if rows != 0 {
		t.Errorf("%d entries of free names", rows)
	}
}

// A lease ends by the machine's clock, to the nanosecond, and expired entries are removed.
func TestExpiry(t *testing.T) {
	t.Parallel()
	now := time.Hour
	s := openWithClock(t, newFile(t), clockAt("boot", &now))
	_, err := s.Acquire(t.Context(), requestOn("n", "holder"))
	must(t, err)
	_, err = s.Acquire(t.Context(), requestOn("left", "holder"))
	must(t, err)
	now += time.Minute - 1
	if st := state(t, s, "n"); st.Holding != 1 || st.Holders[0].Remaining != 1 {
		t.Errorf("%+v a nanosecond before the end", st)
	}
	now++
	if st := state(t, s, "n"); st.Holding != 0 {
		t.Errorf("%+v at the end", st)
	}
	lockAndRelease(t, s, "other", 0)
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
