package dibs

import "sync"

// partlyLost lists the multi-locks that lost a name and still hold others, until their work ends:
// Close must release them. The zero value is ready for use. It is safe for concurrent use.
type partlyLost struct {
	mu     sync.Mutex
	leases map[*lease]struct{}
}

func (p *partlyLost) add(h *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases == nil {
		p.leases = make(map[*lease]struct{})
	}
	p.leases[h] = struct{}{}
}

func (p *partlyLost) remove(h *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.leases, h)
}

// removeAll removes and returns all leases.
func (p *partlyLost) removeAll() (leases []*lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for h := range p.leases {
		leases = append(leases, h)
	}
	clear(p.leases)
	return leases
}
