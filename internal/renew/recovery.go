package renew

import (
	"math/rand/v2"
	"sync"
	"time"
)

// sampleSize is how many leases show whether the store lost its data.
const sampleSize = 32

// A recovery records when the store was last found to be back after a failure. It is safe for
// concurrent use.
type recovery struct {
	mu        sync.Mutex
	sampledAt time.Duration // when a sample was last made due, or zero
	lost      bool          // a lease in the sample is lost
}

// mayBegin reports whether a sample can be renewed now: at most once a second. If one of several
// servers is down for long, successes and failures alternate.
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

// finds reports whether a loss found by a request is the first since the sample.
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

// sample moves a random sample to the front of the leases, and returns it.
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
