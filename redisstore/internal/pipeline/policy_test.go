package pipeline

import "testing"

// A caller sends its own request only to a fast server, if the Conn is prompt, after enough
// single requests, while nothing is queued and a worker's place is free.
func TestPolicyDirect(t *testing.T) {
	const fast = fastReply / 2
	lone := func(requests int) policy {
		p := policy{prompt: true}
		for range requests {
			p.recordExchange(1, fast, true)
		}
		return p
	}
	ready := lone(minSingles)
	slow, failed, shared, busy, hanging := ready, ready, ready, ready, ready
	slow.recordExchange(1, fastReply, true)
	failed.recordExchange(1, fast, false)
	shared.recordExchange(2, fast, true)
	busy.workers = maxWorkers
	hanging.prompt = false
	for name, c := range map[string]struct {
		p      policy
		queued int
		want   bool
	}{
		"a lone caller":             {ready, 0, true},
		"too few single requests":   {lone(minSingles - 1), 0, false},
		"a slow reply":              {slow, 0, false},
		"a failure":                 {failed, 0, false},
		"a batch of two":            {shared, 0, false},
		"a queue":                   {ready, 1, false},
		"all workers are sending":   {busy, 0, false},
		"a Conn that may hang long": {hanging, 0, false},
	} {
		before := c.p.workers
		if c.p.addDirect(c.queued) != c.want || (c.p.workers > before) != c.want {
			t.Errorf("%s: %d workers, %d before: sends directly, want %v", name, c.p.workers, before, c.want)
		}
	}
	failed.recordExchange(1, fast, true)
	if !failed.addDirect(0) {
		t.Error("after a success, the caller does not send directly")
	}
}

// A batch has a share of all requests, within its limits, and no more than are queued.
func TestPolicyQuota(t *testing.T) {
	for _, c := range []struct{ queued, inFlight, want int }{
		{0, 0, 0}, {1, 0, 1}, {3, 0, 3}, {8, 0, minBatch}, {40, 0, 10}, {40, 40, 20}, {5, 400, 5}, {4000, 0, maxBatch},
	} {
		if have := new(policy).quota(c.queued, c.inFlight); have != c.want {
			t.Errorf("%d of %d queued with %d in flight, want %d", have, c.queued, c.inFlight, c.want)
		}
	}
}

// Batches are not coalesced for a while after one in which most requests were contended.
func TestPolicyCoalescing(t *testing.T) {
	var p policy
	p.recordCoalesced(2, 4)
	if !p.mayCoalesce() {
		t.Error("it pauses although only half of the requests were contended")
	}
	p.recordCoalesced(3, 4)
	pauses := 0
	for !p.mayCoalesce() {
		pauses++
	}
	if pauses != coalescePause {
		t.Errorf("%d batches are not coalesced, want %d", pauses, coalescePause)
	}
}

// There are never more workers than the limit.
func TestPolicyWorkers(t *testing.T) {
	var p policy
	for range maxWorkers {
		if !p.addWorker() {
			t.Fatal("a free place is refused")
		}
	}
	if p.addWorker() || p.workers != maxWorkers {
		t.Errorf("%d workers", p.workers)
	}
	p.removeWorker()
	if !p.addWorker() {
		t.Error("the place of an ended worker is not free")
	}
}
