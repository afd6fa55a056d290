package redigostore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/redigostore"
)

// A store of nothing returns ErrInvalid from each call, and does not panic in the background.
func TestNil(t *testing.T) {
	invalidstore.Check(t, redigostore.New(nil), "redigostore.New")
}
