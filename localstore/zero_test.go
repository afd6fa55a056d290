package localstore_test

import (
	"errors"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/localstore"
)

// A zero Store returns ErrInvalid, and does not panic.
func TestZeroStore(t *testing.T) {
	s := new(localstore.Store)
	invalidstore.Check(t, s, "localstore.Open")
	if _, err := s.LivenessFile(); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Alive: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
