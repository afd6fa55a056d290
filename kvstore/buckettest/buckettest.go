// Package buckettest is the conformance suite of kvstore.Bucket. It finds mistakes that package
// storetest cannot find: a store makes its clients in a process take turns, so it hides a bucket
// that does not compare.
//
//	func TestBucket(t *testing.T) {
//		buckettest.Run(t, func(t *testing.T) kvstore.Bucket { return mystore.NewBucket(…) })
//	}
package buckettest

import (
	"context"
	"testing"
	"time"

	"github.com/dibslock/dibs/kvstore"
)

// A Case checks a single requirement.
type Case struct {
	Name        string
	Requirement string

	// Check returns an error if the bucket does not meet the requirement. a and b should be two
	// handles on the same keys. Check uses its own keys, and leaves them behind.
	Check func(ctx context.Context, a, b kvstore.Bucket) error
}

// Run runs Cases in parallel. The two calls to open within a case must return two handles on the
// same keys with separate connections, as in two processes. Their resources end with their t.
func Run(t *testing.T, open func(t *testing.T) kvstore.Bucket) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			a, b := open(t), open(t)
			ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
			defer cancel()
			if err := c.Check(ctx, a, b); err != nil {
				t.Errorf("%v\nrequirement: %s", err, c.Requirement)
			}
		})
	}
}

const (
	caseTimeout = 2 * time.Minute
	soon        = 10 * time.Second // a busy machine's time for immediate events
)

// Cases returns all cases.
func Cases() []Case {
	return []Case{
		{"values", "Get returns what the last Swap of any client has written, byte for byte, each key for itself", values},
		{"keys", "a key has up to 517 bytes, of letters, digits and =._-, and capitals count", keys},
		{"one swap wins", "of concurrent swaps of one revision exactly one returns nil, and the others return ErrConflict", oneWins},
		{"other revision", "a Swap with a revision that the key does not have returns ErrConflict, and changes nothing", otherRevision},
		{"new revisions", "a revision never comes again for a key, not even after the key was deleted", newRevisions},
		{"watch", "Watch calls on soon after it began, and soon after each change, until its context ends", watch},
		{"list", "List calls on with each key that begins with the prefix, and with no other key", list},
		{"clock", "Now is read between the call and the return, and has milliseconds", clock},
	}
}
