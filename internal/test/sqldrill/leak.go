package sqldrill

import (
	"runtime"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/redistest"
)

// NothingRuns closes a client after its network failed, and checks for leaked goroutines. open
// returns a store and a function to close its connections. The test must not be parallel.
func NothingRuns(t *testing.T, proxy *redistest.Proxy, open func() (s driver.Store, closeStore func())) {
	t.Helper()
	before := runtime.NumGoroutine()
	s, closeStore := open()
	locks := dibs.New(s, dibs.TTL(3*time.Second), dibs.Timeout(time.Second))
	lease, err := locks.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Mutex("n").Lock(t.Context(), dibs.Wait(100*time.Millisecond)); err == nil {
		t.Error("two holders")
	}
	proxy.Freeze()
	<-lease.Context().Done() // no renewal arrives
	if err := locks.Close(); err != nil {
		t.Errorf("close after the loss: %v", err)
	}
	proxy.Reset() // a pool waits until the server answers
	proxy.Heal()
	closeStore()
	// A store keeps a new connection for 30 s.
	const longest = 45 * time.Second
	for end := time.Now().Add(longest); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) { // between polls
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}
