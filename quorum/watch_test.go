package quorum

import (
	"slices"
	"testing"

	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/quorum/internal/core"
)

// A hint must be forwarded each time a majority sent it, even if a node never sends it.
func TestHintsOfMajority(t *testing.T) {
	for name, test := range map[string]struct {
		nodes   int
		reports []int // the nodes, in order
		want    []int // after how many reports the hint is forwarded
	}{
		"all nodes":                     {3, []int{0, 1, 2, 1, 2, 0}, []int{2, 5}},
		"one of three is down":          {3, []int{0, 1, 0, 1, 1, 0}, []int{2, 4, 6}},
		"two of five are down":          {5, []int{4, 2, 0, 0, 2, 4}, []int{3, 6}},
		"a node goes down":              {3, []int{0, 1, 2, 0, 1, 1, 0}, []int{2, 5, 7}},
		"a node repeats itself":         {5, []int{0, 0, 0, 1, 0, 2}, []int{6}},
		"a minority sends it for ever":  {3, []int{0, 0, 0, 0}, nil},
		"the last node is a round late": {3, []int{0, 1, 0, 2, 1}, []int{2, 4}},
	} {
		for _, kind := range []driver.EventKind{driver.EventRetry, driver.EventWanted} {
			var have []int
			reports := 0
			w := &watcher{
				s:      &Store{config: core.Config{Nodes: test.nodes, Majority: test.nodes/2 + 1}},
				up:     make([]bool, test.nodes),
				hints:  make(map[string][]bool),
				notify: func(driver.Event) { have = append(have, reports) },
			}
			for _, node := range test.reports {
				reports++
				w.handleEvent(node, driver.Event{Kind: kind, Token: "token"})
			}
			if !slices.Equal(have, test.want) {
				t.Errorf("%s, event %d: forwarded after %v reports, want %v", name, kind, have, test.want)
			}
		}
	}
}
