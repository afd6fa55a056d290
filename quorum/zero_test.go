package quorum_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/quorum"
)

// A zero Store returns ErrInvalid, and does not panic.
func TestZeroStore(t *testing.T) {
	s := new(quorum.Store)
	invalidstore.Check(t, s, "quorum.New")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
