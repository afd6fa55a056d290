package quorum_test

import (
	"testing"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/memstore"
	"github.com/dibslock/dibs/quorum"
	"github.com/dibslock/dibs/storetest"
)

func memories(n int) []dibs.Store {
	nodes := make([]dibs.Store, n)
	for i := range nodes {
		nodes[i] = memstore.New()
	}
	return nodes
}

func TestStore(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5} {
		t.Run(string(rune('0'+n)), func(t *testing.T) {
			storetest.RunInBubble(t, func(*testing.T) dibs.Store { return quorum.Config{Longest: dibs.MaxTTL}.New(memories(n)...) })
		})
	}
}
