//go:build unix

package storetest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/storetest"
)

// A cancelsTwice is a store in which a repeated Cancel ends the lease of the current holder,
// whoever it is.
type cancelsTwice struct {
	*driver.Full
	mu        sync.Mutex
	cancelled map[string]bool // tokens
}

func newCancelsTwice() *cancelsTwice {
	return &cancelsTwice{Full: driver.Complete(memstore.New()), cancelled: make(map[string]bool)}
}

func (s *cancelsTwice) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	s.mu.Lock()
	again := s.cancelled[r.Token]
	s.cancelled[r.Token] = true
	s.mu.Unlock()
	if again {
		state, err := s.Inspect(ctx, r.Name)
		if err != nil {
			return err
		}
		for _, h := range state.Holders {
			r.Token = h.Token
		}
	}
	return s.Store.Cancel(ctx, r)
}

// The cases with lost replies should find a store whose result differs for a repeated request.
func TestARepeatedCancelIsFound(t *testing.T) {
	if output, failed := runFailing(t, "TestCancelsTwice/cancel, replies lost"); !failed {
		t.Errorf("not found:\n%s", output)
	}
}

func TestCancelsTwice(t *testing.T) {
	skipUnlessFailing(t)
	storetest.RunInBubble(t, func(*testing.T) driver.Store { return newCancelsTwice() })
}
