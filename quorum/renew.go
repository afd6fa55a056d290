package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dibslock/dibs/driver"
)

// Extend implements driver.Store. Each node extends all leases; a lease is extended if a
// majority has extended it. A node that does not know a lease which a majority knows is
// asked to vote for it again.
func (s *Store) Extend(ctx context.Context, holds []driver.ExtendRequest) []error {
	if err := gone(ctx, "extend", ""); err != nil {
		return slices.Repeat([]error{err}, len(holds))
	}
	r := s.renew(holds)
	until := deadline(ctx)
	var nodes sync.WaitGroup
	for i, n := range s.nodes {
		nodes.Go(func() {
			ctx, cancel := within(until)
			defer cancel()
			r.record(i, n.Extend(ctx, holds))
		})
	}
	go func() {
		nodes.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.renewals, r)
	}()
	end := time.NewTimer(time.Until(until))
	defer end.Stop()
	select {
	case <-r.done:
	case <-end.C:
	case <-ctx.Done():
	}
	return r.results()
}

// A renewal is one Extend on all nodes.
type renewal struct {
	s     *Store
	holds []driver.ExtendRequest
	notes map[lanekey]error // why a node that does not know a lease has not lost it; guarded by s.mu

	mu   sync.Mutex
	errs [][]error // by node and request; nil until the node has answered
	done chan struct{}
	over bool
}

// newRenewal starts a renewal. A delivery that is pending for one of its leases may be
// served before or after it, for example an acquire without an answer.
func (s *Store) renew(holds []driver.ExtendRequest) *renewal {
	r := &renewal{
		s: s, holds: slices.Clone(holds), notes: make(map[lanekey]error),
		errs: make([][]error, len(s.nodes)), done: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		if c := s.claims[claimKey{h.Name, h.Token}]; c != nil {
			for _, l := range c.lanes {
				switch {
				case !l.isSettled():
					r.notes[l.at] = errUnderWay
				case c.won && l.state != held:
					r.notes[l.at] = errNoVote
				}
			}
		}
	}
	s.renewals[r] = struct{}{}
	return r
}

// record stores a node's results and repairs missing votes. A node that does not know a
// lease has not lost it in two cases: another delivery for the lease was pending there,
// or the node had not voted for the lease, and may have voted since. A lease that was
// released must not get the vote again.
func (r *renewal) record(node int, errs []error) {
	r.s.mu.Lock()
	for i, h := range r.holds {
		if errors.Is(errs[i], driver.ErrLost) {
			errs[i] = cmp.Or(r.notes[lanekey{claimKey{h.Name, h.Token}, node}], errs[i])
		}
	}
	r.s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[node] = errs
	known := true
	for i := range r.holds {
		_, done := r.outcome(i)
		known = known && done
	}
	if known && !r.over {
		r.over = true
		close(r.done)
	}
	for i, h := range r.holds {
		if err, _ := r.outcome(i); err != nil {
			continue
		}
		for n, errs := range r.errs {
			if len(errs) > i && (errors.Is(errs[i], driver.ErrLost) || errors.Is(errs[i], errNoVote)) {
				errs[i] = errRepaired
				r.repair(h, n)
			}
		}
	}
}

var (
	errNoVote   = errors.New("it has not voted for the lease yet")
	errRepaired = errors.New("it did not know the lease and was asked to vote again")
	errUnderWay = errors.New("it did not know the lease while another operation on it was pending")
)

// outcome returns the result of one request, if the nodes' answers decide it. The caller
// holds r.mu.
func (r *renewal) outcome(i int) (err error, decided bool) { //nolint:revive // the error is not the call's
	ok, lost, failed := 0, 0, 0
	for _, errs := range r.errs {
		switch {
		case errs == nil:
		case errs[i] == nil:
			ok++
		case errors.Is(errs[i], driver.ErrLost) || errors.Is(errs[i], errRepaired):
			lost++
		default:
			failed++
		}
	}
	spare := len(r.errs) - r.s.need
	switch {
	case ok >= r.s.need:
		return nil, true
	case lost > spare:
		return driver.ErrLost, true
	}
	return errMute, ok+lost+failed == len(r.errs)
}

func (r *renewal) results() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	results := make([]error, len(r.holds))
	for i, h := range r.holds {
		err, _ := r.outcome(i)
		if err == nil || errors.Is(err, driver.ErrLost) {
			results[i] = err
			continue
		}
		causes := make([]error, len(r.errs))
		for n, errs := range r.errs {
			causes[n] = errMute
			if errs != nil {
				causes[n] = errs[i]
			}
			if errors.Is(causes[n], driver.ErrLost) {
				causes[n] = errForgot
			}
		}
		results[i] = r.s.unavailable("extend", h.Name, causes)
	}
	return results
}

var errForgot = errors.New("it does not know the lease")

// repair asks a node for its vote for a lease that a majority knows. A recently restarted
// node refuses. No other delivery may have been pending there since the renewal began,
// and none may follow it. Otherwise the node would grant a lease that was released, or
// grant a reader's lock to a lease that is now a writer's.
func (r *renewal) repair(h driver.ExtendRequest, node int) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(r.notes[lanekey{claimKey{h.Name, h.Token}, node}], errUnderWay) {
		return // the next renewal can repair it
	}
	c := s.at(h.Name, h.Token)
	if c.open {
		return
	}
	l := c.lanes[node]
	e := new(delivery)
	var until time.Time
	e.begin = func() bool {
		until = time.Now().Add(operation)
		return !c.open && l.last == e
	}
	var a driver.AcquireReply
	e.send = func() (err error) {
		ctx, cancel := within(until)
		defer cancel()
		q, known := s.requestOf(ctx, h)
		if !known {
			return nil
		}
		q.Until = until
		a, err = l.node.Acquire(ctx, q)
		s.clock.saw(a.Fence)
		return err
	}
	e.end = func(err error) (tell func()) {
		if mayPass(err) {
			l.recordUnanswered(until)
		}
		if a.Held {
			l.state = held
		}
		return func() {}
	}
	s.enqueue(l, operation, e)
}

// repairRequest returns the request that repairs a lease. The weight of an attached lease
// is unknown here, so the nodes are queried. Such a lease is repaired only if it is
// exclusive: the process that acquired it may upgrade a reader meanwhile.
func (s *Store) requestOf(ctx context.Context, h driver.ExtendRequest) (q driver.AcquireRequest, known bool) {
	q = driver.AcquireRequest{Name: h.Name, Token: h.Token, Client: h.Client, TTL: h.TTL, Weight: h.Weight, Limit: h.Limit}
	q.Vote = &driver.VoteRequest{Fence: h.Fence, RecoveryWindow: s.memory}
	if h.Weight == 0 {
		state, err := s.Inspect(ctx, h.Name)
		i := slices.IndexFunc(state.Holders, func(o driver.Holder) bool { return o.Token == h.Token && o.Weight == 0 })
		if err != nil || i < 0 {
			return q, false
		}
		q.Weight, q.Limit = 1, 1
		q.Vote.Fence = cmp.Or(state.Holders[i].Fence, state.Fence)
	}
	if q.Vote.Fence == 0 {
		q.Vote.Fence = s.clock.tick()
	}
	return q, true
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Inspect implements driver.Store. A token with the votes of a majority is a holder.
func (s *Store) Inspect(ctx context.Context, name string) (driver.State, error) {
	states, err := askNodes(ctx, s, "inspect", name, func(ctx context.Context, n *node) (driver.State, error) { return n.Inspect(ctx, name) })
	if err != nil {
		return driver.State{}, err
	}
	return s.merge(name, states), nil
}

// merge combines the states of a majority of the nodes into one. A token that holds the
// lock on fewer nodes is reported as a waiter.
func (s *Store) merge(name string, states []driver.State) driver.State {
	out := driver.State{Name: name}
	votes := make(map[string]int)
	holdings := make(map[string][]driver.Holder)
	for _, state := range states {
		out.Fence = max(out.Fence, state.Fence)
		for _, h := range state.Holders {
			votes[h.Token]++
			holdings[h.Token] = append(holdings[h.Token], h)
		}
		s.clock.saw(state.Fence)
	}
	for token, on := range holdings {
		if votes[token] >= s.need {
			out.Holders = append(out.Holders, s.lasts(on))
		}
	}
	slices.SortFunc(out.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Remaining, b.Remaining) })
	type line struct {
		driver.Waiter
		ahead, lists int // sum of its positions in all lists, and the number of those lists
	}
	lines := make(map[string]*line)
	for _, state := range states {
		var all []driver.Waiter
		for _, h := range state.Holders {
			if votes[h.Token] < s.need {
				all = append(all, driver.Waiter{Token: h.Token, Label: h.Label})
			}
		}
		for i, w := range append(all, state.Waiters...) {
			if votes[w.Token] >= s.need {
				continue
			}
			l := lines[w.Token]
			if l == nil {
				l = &line{Waiter: w}
				lines[w.Token] = l
			}
			l.Waited = max(l.Waited, w.Waited)
			l.ahead, l.lists = l.ahead+i, l.lists+1
		}
	}
	order := slices.SortedFunc(maps.Values(lines), func(a, b *line) int {
		return cmp.Or(cmp.Compare(a.ahead*b.lists, b.ahead*a.lists), cmp.Compare(a.Token, b.Token))
	})
	for _, l := range order {
		if l.lists >= s.need {
			out.Waiters = append(out.Waiters, l.Waiter)
		}
	}
	out.Holding, out.Waiting = len(out.Holders), len(out.Waiters)
	return out
}

// mergeHolder combines the entries of one holder on several nodes. Its remaining time is
// how long it has a majority of votes.
func (s *Store) lasts(on []driver.Holder) driver.Holder {
	slices.SortFunc(on, func(a, b driver.Holder) int { return cmp.Compare(b.Remaining, a.Remaining) })
	h := on[s.need-1]
	h.Fence = commonest(on)
	return h
}

// commonFence returns the fence that most nodes have for a lease. One node may have
// issued a larger fence, which is not the lease's; Revoke with that fence would miss the
// other nodes.
func commonest(on []driver.Holder) (fence uint64) {
	known := make(map[uint64]int)
	for _, h := range on {
		known[h.Fence]++
	}
	for f, n := range known {
		if n > known[fence] || n == known[fence] && f > fence {
			fence = f
		}
	}
	return fence
}

// List implements driver.Store. It returns the names that are held on a majority of the
// nodes.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	lists, err := askNodes(ctx, s, "list", "", func(ctx context.Context, n *node) ([]string, error) { return n.List(ctx, pattern) })
	if err != nil {
		return nil, err
	}
	votes := make(map[string]int)
	var names []string
	for _, list := range lists {
		for _, name := range list {
			if votes[name]++; votes[name] == s.need {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// queryNodes calls query for all nodes and returns the values of those that answer in
// time: at least a majority.
func askNodes[T any](ctx context.Context, s *Store, op, name string, ask func(context.Context, *node) (T, error)) ([]T, error) {
	if err := gone(ctx, op, name); err != nil {
		return nil, err
	}
	type reply struct {
		node  int
		value T
		err   error
	}
	replies := make(chan reply, len(s.nodes))
	ctx, cancel := context.WithDeadline(ctx, deadline(ctx))
	defer cancel()
	for i, n := range s.nodes {
		go func() {
			v, err := ask(ctx, n)
			replies <- reply{i, v, err}
		}()
	}
	errs := make([]error, len(s.nodes))
	for i := range errs {
		errs[i] = errMute
	}
	var values []T
	var patience <-chan time.Time
	for range s.nodes {
		select {
		case r := <-replies:
			if errs[r.node] = r.err; r.err == nil {
				values = append(values, r.value)
			}
		case <-patience:
			return values, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("%w", s.unavailable(op, name, errs))
		}
		if len(values) == s.need {
			patience = time.After(straggle)
		}
	}
	if len(values) < s.need {
		return nil, s.unavailable(op, name, errs)
	}
	return values, nil
}
