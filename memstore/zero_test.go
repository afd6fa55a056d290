package memstore_test

import (
	"errors"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/invalidstore"
	"github.com/dibslock/dibs/memstore"
)

// A store that New has not made, or without a clock, returns ErrInvalid, and does not panic.
func TestInvalidStore(t *testing.T) {
	for what, test := range map[string]struct {
		store *memstore.Store
		names string
	}{
		"zero value": {new(memstore.Store), "memstore.New"},
		"nil clock":  {memstore.New(memstore.Option{}, memstore.Clock(nil)), "memstore.Clock"},
	} {
		t.Run(what, func(t *testing.T) {
			invalidstore.Check(t, test.store, test.names)
			test.store.LoseData()
			if err := test.store.Guard(t.Context()); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("a guard: %v", err)
			}
		})
	}
}
