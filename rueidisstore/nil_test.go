package rueidisstore_test

import (
	"testing"

	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/rueidisstore"
)

// A store of nothing returns ErrInvalid from each call, and does not panic in the background.
func TestNil(t *testing.T) {
	invalidstore.Check(t, rueidisstore.New(nil), "rueidisstore.New")
}
