package supervise

import (
	"math"
	"testing"
	"time"
)

// A killing ends after two sweeps in a row that find nothing.
func TestKilling(t *testing.T) {
	var k killing
	sweeps := func(found ...bool) (calls int) {
		for _, f := range found {
			k.sweep(func() bool { calls++; return f }, func() bool { return false })
		}
		return calls
	}
	if n := sweeps(true, true); n != 0 || k.inProgress() {
		t.Errorf("%d sweeps before the begin, want none", n)
	}
	k.begin()
	if n := sweeps(true, false, true, false); n != 4 || !k.inProgress() {
		t.Errorf("%d sweeps, in progress %v; want 4, true", n, k.inProgress())
	}
	if n := sweeps(false, false, false); n != 1 || k.inProgress() {
		t.Errorf("%d more sweeps, in progress %v; want 1, false", n, k.inProgress())
	}
	k.begin()
	k.stop()
	if n := sweeps(true); n != 0 {
		t.Error("it goes on after stop")
	}
}

// While children exist, sweeps that find nothing do not count, up to a limit.
func TestKillingOfInvisibleProcesses(t *testing.T) {
	var k killing
	nothing, some := func() bool { return false }, func() bool { return true }
	k.begin()
	for range maxBlindSweeps {
		k.sweep(nothing, some)
	}
	if k.cleanSweepsLeft != 2 {
		t.Errorf("%d clean sweeps left, want 2", k.cleanSweepsLeft)
	}
	k.sweep(nothing, some)
	k.sweep(nothing, some)
	if k.inProgress() {
		t.Error("it goes on without end")
	}
	k.begin()
	k.sweep(nothing, some)
	k.sweep(some, some)
	if k.blindSweeps != 0 {
		t.Error("a process was found, and the blind sweeps before still count")
	}
}

func TestKillingPauses(t *testing.T) {
	for _, test := range []struct {
		what string
		killing
		want time.Duration
	}{
		{"not in progress", killing{sweeps: 9}, math.MaxInt64},
		{"at first", killing{cleanSweepsLeft: 2, sweeps: 3}, 3 * time.Millisecond},
		{"later", killing{cleanSweepsLeft: 2, sweeps: 5000}, 200 * time.Millisecond},
		{"blind", killing{cleanSweepsLeft: 2, sweeps: 5000, blindSweeps: 1}, time.Millisecond},
	} {
		if have := test.pause(); have != test.want {
			t.Errorf("%s: want %v, have %v", test.what, test.want, have)
		}
	}
}
