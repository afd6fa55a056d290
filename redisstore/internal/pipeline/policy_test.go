package pipeline

import (
	"testing"
	"time"

	"github.com/dibslock/dibs/internal/load"
)

// A caller sends its own request only to a fast server, if the Conn is prompt, while few others
// do, nothing is queued and a worker's place is free.
func TestPolicyDirect(t *testing.T) {
	const fast = fastReply / 2
	ready := policy{prompt: true}
	ready.recordExchange(1, fast, true)
	slow, failed, busy, hanging := ready, ready, ready, ready
	slow.recordExchange(1, fastReply, true)
	failed.recordExchange(1, fast, false)
	busy.workers = maxWorkers
	hanging.prompt = false
	for name, c := range map[string]struct {
		p      policy
		queued int
		want   bool
	}{
		"a lone caller":             {ready, 0, true},
		"no reply so far":           {policy{prompt: true}, 0, false},
		"a slow reply":              {slow, 0, false},
		"a failure":                 {failed, 0, false},
		"a queue":                   {ready, 1, false},
		"all workers are sending":   {busy, 0, false},
		"a Conn that may hang long": {hanging, 0, false},
	} {
		before := c.p.workers
		if c.p.addDirect(c.queued, 0) != c.want || (c.p.workers > before) != c.want {
			t.Errorf("%s: %d workers, %d before: sends directly, want %v", name, c.p.workers, before, c.want)
		}
	}
	failed.recordExchange(1, fast, true)
	if !failed.addDirect(0, 0) {
		t.Error("after a success, the caller does not send directly")
	}
}

// Callers send directly unless many requests are in progress for some time.
func TestPolicyDirectOfMany(t *testing.T) {
	after := func(calls, inFlight int) *policy {
		p := &policy{prompt: true, fast: true}
		for range calls {
			if p.addDirect(0, inFlight) {
				p.removeWorker()
			}
		}
		return p
	}
	if !after(1000, fewOthers).addDirect(0, 0) {
		t.Error("with few others, the caller does not send directly")
	}
	if !after(meanOf/2, 2*fewOthers-2).addDirect(0, 0) {
		t.Error("after a burst, the caller does not send directly")
	}
	many := after(1000, 2*fewOthers)
	if many.addDirect(0, 2*fewOthers) {
		t.Error("with many others, the caller sends directly")
	}
	calls := 0
	for ; !many.addDirect(0, 0); calls++ {
	}
	if calls > 2*meanOf {
		t.Errorf("when the others have left, %d callers do not send directly", calls)
	}
}

// nearServer returns a policy after a quick reply.
func nearServer() (p policy) {
	p.recordExchange(1, nearReply/2, true)
	return p
}

// A server becomes near after a quick reply. It stays near until many replies were slow or an
// exchange failed. A batch can take longer.
func TestPolicyNear(t *testing.T) {
	const requests, window = 8, 64
	var p policy
	for i := range 3 * window {
		p.recordExchange(requests, nearReply+requests*requestTime, true)
		if p.near() {
			t.Fatalf("near after %d slow replies", i+1)
		}
	}
	p.recordExchange(requests, nearReply+requests*requestTime-1, true)
	if !p.near() {
		t.Error("not near after a quick reply")
	}
	slow := 0
	for ; p.near() && slow < 3*window; slow++ {
		p.recordExchange(1, time.Second, true)
	}
	if slow < window || slow > 2*window {
		t.Errorf("not near after %d slow replies, want %d to %d", slow, window, 2*window)
	}
	p = nearServer()
	p.recordExchange(1, 0, false)
	if p.near() {
		t.Error("near after a failure")
	}
}

// A batch should get a share of all requests, within its limits, and never more than are queued.
func TestPolicyQuota(t *testing.T) {
	far, near := policy{}, nearServer()
	for _, c := range []struct{ queued, inFlight, far, near int }{
		{0, 0, 0, 0}, {1, 0, 1, 1}, {3, 0, 3, 3}, {8, 0, minBatch, minBatch}, {10, 0, minBatch, 5}, {6, 6, minBatch, 6}, {24, 0, 6, nearBatch}, {40, 0, 10, 10}, {40, 40, 20, 20}, {5, 400, 5, 5},
		{4000, 0, maxBatch, maxBatch},
	} {
		if have := far.quota(c.queued, c.inFlight); have != c.far {
			t.Errorf("%d of %d queued with %d in flight, want %d", have, c.queued, c.inFlight, c.far)
		}
		if have := near.quota(c.queued, c.inFlight); have != c.near {
			t.Errorf("near: %d of %d queued with %d in flight, want %d", have, c.queued, c.inFlight, c.near)
		}
	}
}

// Requests to a near server wait while more than a few are in flight, unless they are as many
// as those, or enough for a batch.
func TestPolicyMaySend(t *testing.T) {
	far, near := policy{}, nearServer()
	for _, c := range []struct {
		queued, inFlight int
		near             bool
	}{
		{1, 0, true}, {1, fewRequests, true}, {1, fewRequests + 1, false}, {fewRequests, fewRequests + 1, false}, {fewRequests + 1, fewRequests + 1, true}, {nearBatch - 1, maxBatch, false}, {nearBatch, maxBatch, true},
	} {
		if have := near.maySend(c.queued, c.inFlight); have != c.near || !far.maySend(c.queued, c.inFlight) {
			t.Errorf("%d queued, %d in flight: may send to a near server %v, want %v; and always to another one", c.queued, c.inFlight, have, c.near)
		}
	}
	if near.addWorker(1, fewRequests+1) || !near.addWorker(1, fewRequests) {
		t.Error("a worker is not added exactly if it may send")
	}
}

// Requests are not coalesced for a while after a batch in which most were contended.
func TestPolicyCoalescing(t *testing.T) {
	const batch = 4
	var p policy
	p.recordCoalesced(2, 4)
	if !p.mayCoalesce(batch) {
		t.Error("it pauses although only half of the requests were contended")
	}
	p.recordCoalesced(3, 4)
	pauses := 0
	for !p.mayCoalesce(batch) {
		pauses++
	}
	if pauses != coalescePause/batch {
		t.Errorf("%d batches are not coalesced, want %d", pauses, coalescePause/batch)
	}
}

// There must never be more workers than the limit, and only a single worker must be about to take
// queued requests.
func TestPolicyWorkers(t *testing.T) {
	var p policy
	for range maxWorkers {
		if !p.addWorker(1, 0) {
			t.Fatal("a free place is refused")
		}
		if p.addWorker(1, 0) {
			t.Fatal("two workers are about to take the same requests")
		}
		p.taking--
	}
	if p.addWorker(1, 0) || p.workers != maxWorkers {
		t.Errorf("%d workers", p.workers)
	}
	p.removeWorker()
	if !p.addWorker(1, 0) {
		t.Error("the place of an ended worker is not free")
	}
}

// In a busy process, replies wait until they are read. Such replies are not late, and reveal
// nothing about the link.
func TestPolicyOfAProcessThatComputes(t *testing.T) {
	const took = 900 * time.Millisecond
	for _, computes := range []bool{false, true} {
		p := policy{outage: newOutage()}
		p.recordExchange(1, time.Millisecond, true)
		if computes {
			p.ownDelay = load.OwnDelay(300 * time.Millisecond)
		}
		p.recordCongestion(1, took, false)
		p.recordConnection(true, took, served, time.Now())
		if limited := p.congestion.limit > 0; limited == computes {
			t.Errorf("computes: %v, the link is limited: %v", computes, limited)
		}
		if inTime := p.outage.inTime > 0; inTime != computes {
			t.Errorf("computes: %v, the reply is in time: %v", computes, inTime)
		}
	}
}
