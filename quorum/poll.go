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
	yes, no int
	changed chan struct{}
}

func (s *Store) poll() *poll {
	p := &poll{s: s, errs: make([]error, len(s.nodes)), changed: make(chan struct{}, 1)}
	for i := range p.errs {
		p.errs[i] = errMute
	}
	return p
}

// say notes a node's answer.
func (p *poll) say(node int, yes bool, err error) {
	p.mu.Lock()
	p.errs[node] = err
	switch {
	case err != nil:
	case yes:
		p.yes++
	default:
		p.no++
	}
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// result waits until it is known what most nodes say. It is yes if most have done what
// they were asked, and one that had it to do; no if so many had not that most cannot
// have had it.
func (p *poll) result(ctx context.Context, op, name string, until time.Time) (yes bool, err error) {
	end := time.NewTimer(time.Until(until))
	defer end.Stop()
	for over := false; ; {
		if yes, done, err := p.verdict(op, name, over); done {
			return yes, err
		}
		select {
		case <-p.changed:
		case <-end.C:
			over = true
		case <-ctx.Done():
			return false, gone(ctx, op, name)
		}
	}
}

func (p *poll) verdict(op, name string, over bool) (yes, done bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failed := 0
	for _, err := range p.errs {
		if err != nil && !errors.Is(err, errMute) {
			failed++
		}
	}
	all, need := len(p.errs), p.s.need
	switch {
	case p.no > all-need:
		return false, true, nil
	case p.yes >= need, !p.strict && p.yes+p.no >= need && p.yes > 0:
		return true, true, nil
	case over, failed > all-need:
		return false, true, p.s.unavailable(op, name, append([]error(nil), p.errs...))
	}
	return false, false, nil
}
