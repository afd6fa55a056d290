package storetest_test

import (
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/storetest"
)

// The test for your own store.
func Example() {
	_ = func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) driver.Store {
			return memstore.New() // your store, with no locks in it
		})
	}
}
