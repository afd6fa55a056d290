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
	s            *Store
	needMajority bool // the result is yes only if a majority answers yes
	mu           sync.Mutex
	errs         []error // errNoAnswer until the node has answered
	counts       [doneUnclear + 1]int
	changed      chan struct{}
}

func (s *Store) newPoll() *poll {
	p := &poll{s: s, errs: make([]error, len(s.nodes)), changed: make(chan struct{}, 1)}
	for i := range p.errs {
		p.errs[i] = errNoAnswer
	}
	return p
}

// A nodeAnswer is the answer of one node.
type nodeAnswer int

const (
	yes         nodeAnswer = iota
	no                     // there was nothing to do
	doneUnclear            // done, but it is unknown whether there was anything to do
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
		p.counts[a]++
	}
	answered := 0
	for _, err := range p.errs {
		if !errors.Is(err, errNoAnswer) {
			answered++
		}
	}
	p.mu.Unlock()
	if minority := len(p.errs) - p.s.majority; answered <= minority {
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
	stragglers, end := time.NewTimer(stragglerTimeout), time.NewTimer(time.Until(until))
	defer stragglers.Stop()
	defer end.Stop()
	for skipStragglers, expired := false, false; ; {
		if done, decided, err := p.verdict(op, name, skipStragglers, expired); decided {
			return done, err
		}
		select {
		case <-p.changed:
		case <-stragglers.C:
			skipStragglers = true
		case <-end.C:
			expired = true
		case <-ctx.Done():
			return false, contextEnded(ctx, op, name)
		}
	}
}

func (p *poll) verdict(op, name string, skipStragglers, expired bool) (done, decided bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	missing, failed := 0, 0
	for _, err := range p.errs {
		switch {
		case errors.Is(err, errNoAnswer):
			missing++
		case err != nil:
			failed++
		}
	}
	all, need := len(p.errs), p.s.majority
	answered := all - missing - failed
	switch {
	case p.counts[yes] >= need:
		return true, true, nil
	case p.counts[no] > all-need:
		return false, true, nil
	case !p.needMajority && p.counts[yes] > 0 && answered >= need && (missing == 0 || skipStragglers || expired):
		return true, true, nil
	case !p.needMajority && answered == all:
		return false, true, nil
	case expired, failed > all-need:
		return false, true, p.s.unavailable(op, name, append([]error(nil), p.errs...))
	}
	return false, false, nil
}
