package badname

import (
	"errors"
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
)

func TestEmptyName(t *testing.T) {
	if _, err := dibs.New(memstore.New()).Mutex("").TryLock(t.Context()); !errors.Is(err, dibs.ErrInvalid) {
		t.Error(err)
	}
}
