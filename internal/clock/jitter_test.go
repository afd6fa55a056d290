package clock

import (
	"fmt"
	"testing"
	"time"
)

// Names that begin together, and different times for a name, should get evenly distributed numbers.
func TestJitter(t *testing.T) {
	for what, number := range map[string]func(i int) float64{
		"names": func(i int) float64 { return Jitter(fmt.Sprint("name-", i), time.Hour) },
		"times": func(i int) float64 { return Jitter("name", time.Duration(i)) },
	} {
		var counts [10]int
		for i := range 10_000 {
			x := number(i)
			if x < 0 || x >= 1 {
				t.Fatalf("%s: %v", what, x)
			}
			counts[int(10*x)]++
		}
		for i, n := range counts {
			if n < 800 || n > 1200 {
				t.Errorf("%s: %d of 10,000 in tenth %d", what, n, i)
			}
		}
	}
}
