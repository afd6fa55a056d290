package history_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/memstore"
)

// seeds returns the number of seeds to try: few, or many in long tests.
func seeds(few, many uint64) uint64 {
	if os.Getenv("DIBS_LONG") == "1" {
		return many
	}
	return few
}

// inBubble runs a test for some seeds in virtual time.
func inBubble(t *testing.T, seeds uint64, run func(t *testing.T, seed uint64)) {
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { run(t, seed) })
		})
	}
}

// The memory store and its clients must be consistent.
func TestMemory(t *testing.T) {
	inBubble(t, seeds(2, 20), func(t *testing.T, seed uint64) {
		wantPrompt(t, record(t, memstore.New(), history.Plan{Seed: seed, Ops: 10_000, ReuseTokens: true}))
	})
}

// The same when requests, replies and events overtake each other.
func TestDelayedMessages(t *testing.T) {
	inBubble(t, seeds(2, 20), func(t *testing.T, seed uint64) {
		store := delayed(memstore.New(), seed, 100*time.Microsecond<<(seed%6), faults{})
		wantPrompt(t, record(t, store, history.Plan{Seed: seed, Ops: 10_000, ReuseTokens: true}))
	})
}

// wantPrompt checks that no waiter had to find its lease by a heartbeat because the store missed a
// hand-off. Only virtual time is exact enough for this.
func wantPrompt(t *testing.T, longest time.Duration) {
	t.Helper()
	if longest >= driver.WaiterTTL/2 {
		t.Errorf("a waiter waited %v", longest)
	}
}

// The same with lost messages. The remains of a closed Client can then last until they expire.
func TestLostMessages(t *testing.T) {
	inBubble(t, seeds(2, 20), func(t *testing.T, seed uint64) {
		store := delayed(memstore.New(), seed, time.Millisecond, faults{losses: 5})
		h, _ := history.Record(t.Context(), store, history.Plan{Seed: seed, Ops: 10_000, ReuseTokens: true})
		for _, v := range history.Check(h) {
			if v.Rule != history.Leftover {
				t.Errorf("seed %d: %v", seed, v)
			}
		}
	})
}

// The same with reset connections: requests can arrive after later requests were answered, some
// too late to take effect. Nothing is left behind.
func TestDeliveredLate(t *testing.T) {
	testResets(t, faults{resets: 40, refusals: 10, latest: 700 * time.Millisecond})
}

// The same if the requests arrive at once and the following tries are refused.
func TestRefusedAfterAReset(t *testing.T) {
	testResets(t, faults{resets: 40, refusals: 10})
}

func testResets(t *testing.T, f faults) {
	inBubble(t, seeds(2, 20), func(t *testing.T, seed uint64) {
		store := delayed(memstore.New(), seed, time.Millisecond, f)
		h, err := history.Record(t.Context(), store, history.Plan{Seed: seed, Ops: 10_000, ReuseTokens: true, KeepClients: true})
		if err != nil {
			t.Error(err)
		}
		store.late.Wait()
		longest := time.Duration(0)
		for _, op := range h {
			longest = max(longest, op.Return.At-op.Call.At)
		}
		t.Logf("%d operations, the longest took %v", len(h), longest)
		if longest > driver.WaiterTTL {
			t.Errorf("a call took %v: it waited for a lease without an owner", longest)
		}
		for _, v := range history.Check(h) {
			if v.Rule != history.Busy { // a late try blocks others until it is cancelled
				t.Errorf("seed %d: %v", seed, v)
			}
		}
	})
}

// record runs the plan, and checks that enough happened for a meaningful test. It returns the
// longest wait.
func record(t *testing.T, store driver.Store, plan history.Plan) (longest time.Duration) {
	t.Helper()
	begin := time.Now()
	h := history.Run(t, store, plan)
	granted, busy, lost := 0, 0, 0
	for _, op := range h {
		if op.Verb == history.Acquire {
			longest = max(longest, op.Return.At-op.Call.At)
		}
		switch {
		case op.Verb == history.Acquire && op.Err == nil:
			granted++
		case errors.Is(op.Err, dibs.ErrBusy):
			busy++
		case op.Verb == history.Release && errors.Is(op.Err, dibs.ErrLost):
			lost++
		}
	}
	t.Logf("%d operations in %v: %d leases granted, %d refused, %d lost; the longest wait %v",
		len(h), time.Since(begin), granted, busy, lost, longest)
	if granted < plan.Ops/3 || busy < plan.Ops/20 || lost < plan.Ops/200 {
		t.Error("too few leases were granted, refused, or lost for a meaningful test")
	}
	return longest
}
