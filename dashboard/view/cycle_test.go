package view

import (
	"fmt"
	"testing"

	"github.com/dibslock/dibs/dashboard/waitgraph"
)

func TestCycle(t *testing.T) {
	g := waitgraph.Graph{}
	for i := range 6 {
		g.Processes = append(g.Processes, waitgraph.Process{Host: "web", PID: i + 1})
	}
	ring := func(n int) (c waitgraph.Cycle) {
		for i := range n {
			c.Waits = append(c.Waits, waitgraph.Wait{Waiter: i, Holder: (i + 1) % n, Name: fmt.Sprintf("n\x1b%d", i)})
		}
		return c
	}
	two, six := ring(2), ring(6)
	two.Sure = true
	for _, c := range []struct {
		cycle waitgraph.Cycle
		want  string
	}{
		{two, `2 processes wait for each other: web:1 waits for "n\x1b0" of web:2, web:2 waits for "n\x1b1" of web:1`},
		{six, `6 processes may wait for each other: web:1 waits for "n\x1b0" of web:2, web:2 waits for "n\x1b1" of web:3, web:3 waits for "n\x1b2" of web:4, web:4 waits for "n\x1b3" of web:5, …`},
	} {
		if have := Cycle(g, c.cycle); have != c.want {
			t.Errorf("have %s\nwant %s", have, c.want)
		}
	}
}
