package dibs

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A recovery records when the store was last found to be back after a failure. It is safe for
// concurrent use.
type recovery struct {
	mu        sync.Mutex
	sampledAt time.Duration // when a sample of the leases was last made due, or zero
	lost      bool          // one of them is lost
}

// mayBegin reports whether a sample may be renewed now. That is at most once a second: if one
// of several servers is down for long, successes and failures alternate.
func (r *recovery) mayBegin(now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sampledAt != 0 && now-r.sampledAt < time.Second {
		return false
	}
	r.sampledAt, r.lost = now, false
	return true
}

// begin records that all leases are being renewed.
func (r *recovery) begin(now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampledAt, r.lost = now, false
}

// finds reports whether a loss that a request found is the first one since the sample.
func (r *recovery) finds(sent time.Duration) bool {
	const sampling = 10 * time.Second
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sampledAt == 0 || r.lost || sent < r.sampledAt || sent-r.sampledAt > sampling {
		return false
	}
	r.lost = true
	return true
}

// sampleLeases renews some leases now, because the store is available again after a failure,
// and may have lost them. It returns false if that was done just before.
func (c *Client) sampleLeases() bool {
	now := c.clock.now()
	if !c.recovery.mayBegin(now) {
		return false
	}
	c.renewals.Suspect(sample(c.renewals.All()), now)
	return true
}

// reconnected renews leases because the connection to the store was lost, and perhaps the store's
// data. A sample tells whether it has lost all. The last writes may be lost alone: so leases that
// were never renewed are suspects, too.
func (c *Client) reconnected() {
	now := c.clock.now()
	c.recovery.begin(now)
	c.gate.Restart()
	all := c.renewals.All()
	some := sample(all)
	for _, h := range all[len(some):] {
		if h.isNew() {
			some = append(some, h)
		}
	}
	c.renewals.Suspect(some, now)
}

// failedOver renews all leases, because another server may have become the master, which has not
// received all writes.
func (c *Client) failedOver() {
	now := c.clock.now()
	c.recovery.begin(now)
	c.gate.Restart()
	all := c.renewals.All()
	c.renewals.Suspect(all, now)
}

// suspectRest renews all leases at once, because one of the sample is lost.
func (c *Client) suspectRest(sent time.Duration) {
	if c.recovery.finds(sent) {
		c.renewals.Lose(sent)
	}
}

// sample moves a random sample of the leases to the beginning, and returns it.
func sample(all []*lease) []*lease {
	if len(all) <= sampleSize {
		return all[:len(all):len(all)]
	}
	for i := range sampleSize {
		j := i + rand.IntN(len(all)-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:sampleSize:sampleSize]
}

// isNew reports whether the store has not answered a renewal of the lease yet.
func (h *lease) isNew() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.wasRenewed
}
