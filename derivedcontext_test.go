package dibs

import "testing"

// Contexts are removed in any order, once.
func TestDerivedContexts(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}} {
		var all derivedContexts
		contexts := []*derivedContext{{}, {}, {}}
		for _, c := range contexts {
			all.add(c)
		}
		for n, i := range order {
			for range 2 {
				all.remove(contexts[i])
				if left := count(all); left != len(order)-n-1 {
					t.Fatalf("order %v: %d left after %d were removed", order, left, n+1)
				}
			}
		}
	}
	var all derivedContexts
	one, two := new(derivedContext), new(derivedContext)
	all.add(one)
	all.add(two)
	if taken := all.removeAll(); len(taken) != 2 || count(all) != 0 {
		t.Errorf("%d of two taken, %d left", len(taken), count(all))
	}
	all.remove(one) // without effect
}

func count(all derivedContexts) (n int) {
	for c := all.first; c != nil; c = c.next {
		n++
	}
	return n
}
