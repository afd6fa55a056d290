package interop

import "sync"

// A phase begins when all rows have left the phase before it.
type phase struct {
	places chan struct{}  // for the rows running at once
	left   sync.WaitGroup // by the rows
}

// The matrix's phases. The last phase runs alone on the machine.
const (
	correctness = iota // a row's columns run at once
	waiting
	saturation
)

func newPhases() []*phase {
	widths := [...]int{correctness: 6, waiting: 4, saturation: 1}
	phases := make([]*phase, len(widths))
	for i, width := range widths {
		phases[i] = &phase{places: make(chan struct{}, width)}
	}
	return phases
}

// run waits for a place.
func (p *phase) run(f func()) {
	p.places <- struct{}{}
	defer func() { <-p.places }()
	f()
}

// leave lets other rows begin the phases after these.
func leave(phases []*phase) {
	for _, p := range phases {
		p.left.Done()
	}
}
