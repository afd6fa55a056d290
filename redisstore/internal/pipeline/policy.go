package pipeline

import "time"

// A policy decides how requests are sent: by whom, and how many at once. It has all
// heuristics and their limits, and no I/O.
type policy struct {
	prompt         bool // the Conn returns soon after the time until which a caller waits
	workers        int  // that are sending, callers included
	singles        int  // consecutive exchanges of a single request
	fast           bool // the last exchange succeeded, within fastReply
	skipCoalescing int  // batches left that are not coalesced
}

const (
	maxWorkers = 4   // more would only divide the batches
	maxBatch   = 128 // requests; the server executes a batch without a pause
	minBatch   = 4

	minSingles    = 16                     // consecutive single requests after which callers send directly
	fastReply     = 10 * time.Millisecond  // a server that replies within this is fast
	directTimeout = 100 * time.Millisecond // of a caller that sends its own request

	// coalescePause is how many batches are not coalesced, after a batch in which most
	// requests were contended.
	coalescePause = 64
)

// addWorker reports whether one more worker may send, and counts it.
func (p *policy) addWorker() bool {
	if p.workers == maxWorkers {
		return false
	}
	p.workers++
	return true
}

// addDirect reports whether a caller may send its own request, and counts it as a worker.
// This avoids two goroutine switches, which cost more than everything else that dibs does
// for a lock. It is for a fast server and a lone caller.
func (p *policy) addDirect(queued int) bool {
	return p.prompt && p.fast && p.singles >= minSingles && queued == 0 && p.addWorker()
}

func (p *policy) removeWorker() { p.workers-- }

// quota returns how many of the queued requests one worker sends: while the server
// processes one batch, the client prepares the next.
func (p *policy) quota(queued, inFlight int) int {
	part := (queued + inFlight + maxWorkers - 1) / maxWorkers
	return min(queued, max(part, minBatch), maxBatch)
}

// recordExchange records an exchange of some requests, and whether it succeeded.
func (p *policy) recordExchange(requests int, took time.Duration, succeeded bool) {
	if p.singles++; requests > 1 {
		p.singles = 0
	}
	p.fast = succeeded && took < fastReply
}

// mayCoalesce reports whether the requests of the next batch are coalesced.
func (p *policy) mayCoalesce() bool {
	if p.skipCoalescing > 0 {
		p.skipCoalescing--
		return false
	}
	return true
}

// recordCoalesced records how many of the coalesced requests had to be sent alone.
func (p *policy) recordCoalesced(alone, coalesced int) {
	if alone > coalesced/2 {
		p.skipCoalescing = coalescePause
	}
}
