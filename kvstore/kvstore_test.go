package kvstore_test

import (
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/kvstore"
	"github.com/dibslock/dibs/storetest"
)

func TestStore(t *testing.T) {
	open := func(*testing.T) driver.Store { return kvstore.New(newMemory()) }
	storetest.RunInBubble(t, open)
	storetest.RunPlacesInBubble(t, open)
}
