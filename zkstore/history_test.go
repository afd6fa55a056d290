package zkstore_test

import (
	"fmt"
	"testing"

	"github.com/dibslock/dibs/storetest"
)

// A server and its clients are consistent in real time.
func TestHistory(t *testing.T) {
	t.Parallel()
	seeds, steps := 2, 500
	if isLong() {
		seeds, steps = 20, 10_000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			storetest.RunHistory(t, newStore(t), uint64(seed), steps)
		})
	}
}
