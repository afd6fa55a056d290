package quorum

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A poll asks all nodes something that most must have done, or not done.
type poll struct {
	s       *Store
	strict  bool // it is yes only if most say so
	mu      sync.Mutex
	errs    []error // errMute until a node has answered
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

// An answer is what a node says.
type nodeAnswer int

const (
	yes  nodeAnswer = iota
	no              // it had nothing to do
	none            // it has done it, and nobody knows whether there was something to do
)

func toAnswer(done bool) nodeAnswer {
	if done {
		return yes
	}
	return no
}

// say notes a node's answer.
func (p *poll) record(node int, a nodeAnswer, err error) {
	p.mu.Lock()
	if p.errs[node] == nil {
		p.mu.Unlock()
		return // it was told once more, to be sure
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
		return // nothing can be known yet
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// result waits until it is known what most nodes say: yes, or no if so many have not done
// it that most cannot. If neither will be known, some yes is enough, unless strict: most
// have answered, and none of them has it to do any more.
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
