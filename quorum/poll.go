package quorum

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A poll collects the nodes' answers to an operation that a majority must have done, or
// not done.
type poll struct {
	s       *Store
	strict  bool // the result is yes only if a majority answers yes
	mu      sync.Mutex
	errs    []error // errNoAnswer until the node has answered
	said    [none + 1]int
	changed chan struct{}
}

func (s *Store) poll() *poll {
	p := &poll{s: s, errs: make([]error, len(s.nodes)), changed: make(chan struct{}, 1)}
	for i := range p.errs {
		p.errs[i] = errMute
	}
	return p
}

// A nodeAnswer is the answer of one node.
type nodeAnswer int

const (
	yes  nodeAnswer = iota
	no              // there was nothing to do
	none            // done, but it is unknown whether there was anything to do
)

func toAnswer(done bool) nodeAnswer {
	if done {
		return yes
	}
	return no
}

// record stores a node's answer.
func (p *poll) record(node int, a nodeAnswer, err error) {
	p.mu.Lock()
	if p.errs[node] == nil {
		p.mu.Unlock()
		return // a repeated delivery
	}
	if p.errs[node] = err; err == nil {
		p.said[a]++
	}
	heard := 0
	for _, err := range p.errs {
		if !errors.Is(err, errMute) {
			heard++
		}
	}
	p.mu.Unlock()
	if few := len(p.errs) - p.s.need; heard <= few {
		return // too few answers for a result
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// result waits for the answer of a majority: yes, or no if a majority of yes is
// impossible. If neither is reached, one yes suffices unless needMajority is set: a
// majority has answered, and none of these nodes still has it to do.
func (p *poll) result(ctx context.Context, op, name string, until time.Time) (done bool, err error) {
	patience, end := time.NewTimer(straggle), time.NewTimer(time.Until(until))
	defer patience.Stop()
	defer end.Stop()
	for late, over := false, false; ; {
		if done, decided, err := p.verdict(op, name, late, over); decided {
			return done, err
		}
		select {
		case <-p.changed:
		case <-patience.C:
			late = true
		case <-end.C:
			over = true
		case <-ctx.Done():
			return false, gone(ctx, op, name)
		}
	}
}

func (p *poll) verdict(op, name string, late, over bool) (done, decided bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mute, failed := 0, 0
	for _, err := range p.errs {
		switch {
		case errors.Is(err, errMute):
			mute++
		case err != nil:
			failed++
		}
	}
	all, need := len(p.errs), p.s.need
	answered := all - mute - failed
	switch {
	case p.said[yes] >= need:
		return true, true, nil
	case p.said[no] > all-need:
		return false, true, nil
	case !p.strict && p.said[yes] > 0 && answered >= need && (mute == 0 || late || over):
		return true, true, nil
	case !p.strict && answered == all:
		return false, true, nil
	case over, failed > all-need:
		return false, true, p.s.unavailable(op, name, append([]error(nil), p.errs...))
	}
	return false, false, nil
}
