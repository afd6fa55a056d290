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
// majority has extended it. A node without a lease that a majority has is asked to vote
// again.
func (s *Store) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	if err := contextEnded(ctx, "extend", ""); err != nil {
		return slices.Repeat([]error{err}, len(requests))
	}
	r := s.newRenewal(requests)
	until := deadlineOf(ctx)
	var nodes sync.WaitGroup
	for i, n := range s.nodes {
		nodes.Go(func() {
			ctx, cancel := nodeContext(until)
			defer cancel()
			r.record(i, n.Extend(ctx, requests))
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
	s        *Store
	requests []driver.ExtendRequest
	notLost  map[queueKey]error // why a node without a lease has not lost it; guarded by s.mu

	mu     sync.Mutex
	errs   [][]error // by node and request; nil until the node has answered
	done   chan struct{}
	closed bool
}

// newRenewal starts a renewal. A delivery that is pending for one of its leases may be
// served before or after it, for example an acquire without an answer.
func (s *Store) newRenewal(requests []driver.ExtendRequest) *renewal {
	r := &renewal{
		s: s, requests: slices.Clone(requests), notLost: make(map[queueKey]error),
		errs: make([][]error, len(s.nodes)), done: make(chan struct{}),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range requests {
		if c := s.acquisitions[acquisitionKey{h.Name, h.Token}]; c != nil {
			for _, nq := range c.queues {
				switch {
				case !nq.isIdle():
					r.notLost[nq.key] = errUnderWay
				case c.granted && nq.state != held:
					r.notLost[nq.key] = errNoVote
				}
			}
		}
	}
	s.renewals[r] = struct{}{}
	return r
}

// record stores a node's results and repairs missing votes. A node without a lease has
// not lost it in two cases. Another delivery for the lease was pending there, or the node
// had not voted for the lease, and may have voted since. A lease that was released must
// not get the vote again.
func (r *renewal) record(node int, errs []error) {
	r.s.mu.Lock()
	for i, h := range r.requests {
		if errors.Is(errs[i], driver.ErrLost) {
			errs[i] = cmp.Or(r.notLost[queueKey{acquisitionKey{h.Name, h.Token}, node}], errs[i])
		}
	}
	r.s.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[node] = errs
	known := true
	for i := range r.requests {
		_, done := r.outcome(i)
		known = known && done
	}
	if known && !r.closed {
		r.closed = true
		close(r.done)
	}
	for i, h := range r.requests {
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
	errNoVote   = errors.New("it has not yet voted for the lease")
	errRepaired = errors.New("it did not have the lease and was requested to vote again")
	errUnderWay = errors.New("it did not have the lease while another operation on it was pending")
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
	spare := len(r.errs) - r.s.majority
	switch {
	case ok >= r.s.majority:
		return nil, true
	case lost > spare:
		return driver.ErrLost, true
	}
	return errNoAnswer, ok+lost+failed == len(r.errs)
}

func (r *renewal) results() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	results := make([]error, len(r.requests))
	for i, h := range r.requests {
		err, _ := r.outcome(i)
		if err == nil || errors.Is(err, driver.ErrLost) {
			results[i] = err
			continue
		}
		causes := make([]error, len(r.errs))
		for n, errs := range r.errs {
			causes[n] = errNoAnswer
			if errs != nil {
				causes[n] = errs[i]
			}
			if errors.Is(causes[n], driver.ErrLost) {
				causes[n] = errNoLease
			}
		}
		results[i] = r.s.unavailable("extend", h.Name, causes)
	}
	return results
}

var errNoLease = errors.New("it does not have the lease")

// repair asks a node for its vote for a lease that a majority has. A recently restarted
// node refuses. No other delivery may have been pending there since the renewal began,
// and none may follow it. Otherwise the node would grant a lease that was released, or
// grant a reader's lock to a lease that is now a writer's.
func (r *renewal) repair(h driver.ExtendRequest, node int) {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(r.notLost[queueKey{acquisitionKey{h.Name, h.Token}, node}], errUnderWay) {
		return // the next renewal can repair it
	}
	c := s.acquisitionFor(h.Name, h.Token)
	if c.active {
		return
	}
	nq := c.queues[node]
	d := new(delivery)
	var until time.Time
	d.begin = func() bool {
		until = time.Now().Add(operationTimeout)
		return !c.active && nq.newest == d
	}
	var a driver.VoteReply
	d.send = func() (err error) {
		ctx, cancel := nodeContext(until)
		defer cancel()
		q, vote, known := s.repairRequest(ctx, h)
		if !known {
			return nil
		}
		q.Until = until
		a, err = nq.node.AcquireVote(ctx, q, vote)
		s.clock.observe(a.Fence)
		return err
	}
	d.end = func(err error) (notify func()) {
		if unanswered(err) {
			nq.recordUnanswered(until)
		}
		if a.Held {
			nq.state = held
		}
		return func() {}
	}
	s.enqueue(nq, operationTimeout, d)
}

// repairRequest returns the request that repairs a lease. The weight of an attached lease
// is unknown here, so the nodes are queried. Such a lease is repaired only if it is
// exclusive: the process that acquired it may upgrade a reader meanwhile.
func (s *Store) repairRequest(ctx context.Context, h driver.ExtendRequest) (q driver.AcquireRequest, vote driver.Vote, known bool) {
	q = driver.AcquireRequest{Name: h.Name, Token: h.Token, Client: h.Client, TTL: h.TTL, Weight: h.Weight, Limit: h.Limit}
	vote = driver.Vote{Fence: h.Fence, RecoveryWindow: s.recoveryWindow}
	if h.Weight == 0 {
		state, err := s.Inspect(ctx, h.Name)
		i := slices.IndexFunc(state.Holders, func(o driver.Holder) bool { return o.Token == h.Token && o.Weight == 0 && !o.Reserved })
		if err != nil || i < 0 {
			return q, vote, false
		}
		q.Weight, q.Limit = 1, 1
		vote.Fence = cmp.Or(state.Holders[i].Fence, state.Fence)
	}
	if vote.Fence == 0 {
		vote.Fence = s.clock.next()
	}
	return q, vote, true
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
	states, err := queryNodes(ctx, s, "inspect", name, func(ctx context.Context, n *node) (driver.State, error) { return n.Inspect(ctx, name) })
	if err != nil {
		return driver.State{}, err
	}
	return s.merge(name, states), nil
}

// A holderID identifies a holder on all nodes. A lease and what it has reserved are
// different holders.
type holderID struct {
	token    string
	reserved bool
}

// merge combines the states of a majority of the nodes into one. A token that holds the
// lock on fewer nodes is reported as a waiter.
func (s *Store) merge(name string, states []driver.State) driver.State {
	out := driver.State{Name: name}
	entries := make(map[holderID][]driver.Holder)
	for _, state := range states {
		out.Fence = max(out.Fence, state.Fence)
		for _, h := range state.Holders {
			id := holderID{h.Token, h.Reserved}
			entries[id] = append(entries[id], h)
		}
		s.clock.observe(state.Fence)
	}
	holds := make(map[string]bool)
	for id, on := range entries {
		if len(on) >= s.majority {
			out.Holders = append(out.Holders, s.mergeHolder(on))
			holds[id.token] = true
		}
	}
	slices.SortFunc(out.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Remaining, b.Remaining) })
	type entry struct {
		driver.Waiter
		positions, lists int // sum of its positions in all lists, and the number of those lists
	}
	waiters := make(map[string]*entry)
	for _, state := range states {
		var all []driver.Waiter
		for _, h := range state.Holders {
			if !holds[h.Token] && !h.Reserved {
				all = append(all, driver.Waiter{Token: h.Token, Label: h.Label})
			}
		}
		for i, w := range append(all, state.Waiters...) {
			if holds[w.Token] {
				continue
			}
			e := waiters[w.Token]
			if e == nil {
				e = &entry{Waiter: w}
				waiters[w.Token] = e
			}
			e.Waited = max(e.Waited, w.Waited)
			e.positions, e.lists = e.positions+i, e.lists+1
		}
	}
	order := slices.SortedFunc(maps.Values(waiters), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.positions*b.lists, b.positions*a.lists), cmp.Compare(a.Token, b.Token))
	})
	for _, e := range order {
		if e.lists >= s.majority {
			out.Waiters = append(out.Waiters, e.Waiter)
		}
	}
	out.Holding, out.Waiting = len(out.Holders), len(out.Waiters)
	return out
}

// mergeHolder combines the entries of one holder on several nodes. Its remaining time is
// how long it has a majority of votes.
func (s *Store) mergeHolder(on []driver.Holder) driver.Holder {
	slices.SortFunc(on, func(a, b driver.Holder) int { return cmp.Compare(b.Remaining, a.Remaining) })
	h := on[s.majority-1]
	h.Fence = commonFence(on)
	return h
}

// commonFence returns the fence that most nodes have for a lease. One node may have
// issued a larger fence, which is not the lease's; Revoke with that fence would miss the
// other nodes.
func commonFence(on []driver.Holder) (fence uint64) {
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
	lists, err := queryNodes(ctx, s, "list", "", func(ctx context.Context, n *node) ([]string, error) { return n.List(ctx, pattern) })
	if err != nil {
		return nil, err
	}
	votes := make(map[string]int)
	var names []string
	for _, list := range lists {
		for _, name := range list {
			if votes[name]++; votes[name] == s.majority {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// queryNodes calls query for all nodes and returns the values of those that answer in
// time: at least a majority.
func queryNodes[T any](ctx context.Context, s *Store, op, name string, query func(context.Context, *node) (T, error)) ([]T, error) {
	if err := contextEnded(ctx, op, name); err != nil {
		return nil, err
	}
	type reply struct {
		node  int
		value T
		err   error
	}
	replies := make(chan reply, len(s.nodes))
	ctx, cancel := context.WithDeadline(ctx, deadlineOf(ctx))
	defer cancel()
	for i, n := range s.nodes {
		go func() {
			v, err := query(ctx, n)
			replies <- reply{i, v, err}
		}()
	}
	errs := make([]error, len(s.nodes))
	for i := range errs {
		errs[i] = errNoAnswer
	}
	var values []T
	var stragglers <-chan time.Time
	for range s.nodes {
		select {
		case r := <-replies:
			if errs[r.node] = r.err; r.err == nil {
				values = append(values, r.value)
			}
		case <-stragglers:
			return values, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("%w", s.unavailable(op, name, errs))
		}
		if len(values) == s.majority {
			stragglers = time.After(stragglerTimeout)
		}
	}
	if len(values) < s.majority {
		return nil, s.unavailable(op, name, errs)
	}
	return values, nil
}
