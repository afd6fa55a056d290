// Package servicetest contains the shared parts of the tests in contrib.
package servicetest

import (
	"runtime"
	"testing"
	"time"

	"github.com/dibslock/dibs"
)

// Generous limits a wait for an event, on a busy machine.
const Generous = 20 * time.Second

// WantFree checks that a name has no holder and no waiter.
func WantFree(t *testing.T, locks *dibs.Client, name string) {
	t.Helper()
	state, err := locks.Inspect(t.Context(), name)
	if err != nil || state.Holding != 0 || state.Waiting != 0 {
		t.Errorf("%s: have %d holders and %d waiters, %v, want none", name, state.Holding, state.Waiting, err)
	}
}

// WantNoGoroutines checks that nothing runs after the test and its other clean-ups. Call it
// first. The test must not be parallel.
func WantNoGoroutines(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(Generous); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) { // between polls
			if time.Now().After(end) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}

// Eventually polls a condition.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(Generous); !condition(); time.Sleep(5 * time.Millisecond) { // between polls
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, Generous)
		}
	}
}

// Receive returns a channel's next value.
func Receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Generous):
		t.Fatalf("%s: not within %v", what, Generous)
	}
	panic("unreachable")
}
