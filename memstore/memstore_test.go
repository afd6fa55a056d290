package memstore_test

import (
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/storetest"
)

func TestStore(t *testing.T) {
	storetest.RunInBubble(t, func(*testing.T) driver.Store { return memstore.New() })
}

func TestVotes(t *testing.T) {
	storetest.RunVotesInBubble(t, func(*testing.T) driver.Voter { return memstore.New() })
}
