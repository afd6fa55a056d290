package renew

import (
	"math/rand/v2"
	"sync"
	"time"
)

// sampleSize is how many leases show whether the store has lost its data.
const sampleSize = 32

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

// sample moves a random sample of the leases to the beginning, and returns it.
func sample[H any](all []H) []H {
	if len(all) <= sampleSize {
		return all[:len(all):len(all)]
	}
	for i := range sampleSize {
		j := i + rand.IntN(len(all)-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:sampleSize:sampleSize]
}
