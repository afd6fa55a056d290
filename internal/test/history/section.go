package history

import (
	"sync/atomic"
	"testing"
)

// A Section is a critical section. It checks that holders exclude each other, and that their fences
// grow. The zero value is ready for use. It is safe for concurrent use.
type Section struct {
	inside atomic.Int32
	last   atomic.Uint64
}

// Visit enters the section with a lease's fence, and leaves it.
func (s *Section) Visit(t testing.TB, fence uint64) {
	t.Helper()
	if s.inside.Add(1) != 1 {
		t.Error("two holders at once")
	}
	if before := s.last.Swap(fence); before >= fence {
		t.Errorf("fence %d after %d", fence, before)
	}
	s.inside.Add(-1)
}
