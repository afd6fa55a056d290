// Package memstore keeps claims in memory: for tests, where it is exact and
// instant inside a testing/synctest bubble, for examples, and for programs of one
// process. It excludes nobody outside the process.
package memstore

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs"
)

// A Store is a dibs.Store in memory. It has no goroutine and no timer: what has
// expired is found by whoever looks next. It is safe for concurrent use.
type Store struct {
	mu       sync.Mutex
	names    map[string]*entry
	watchers map[string][]*watcher // by client
	fence    uint64                // the largest so far, of all names
	ticket   uint64
}

var _ dibs.Store = (*Store)(nil)

type entry struct {
	holders []holder
	queue   []place
}

type holder struct {
	token   string
	weight  int
	expires time.Time
}

type place struct {
	claim  dibs.Claim
	ticket uint64
	joined time.Time
	seen   time.Time
}

type watcher struct{ on func(dibs.Event) }

// A message is an event on its way to its client, sent without the mutex.
type message struct {
	to    []*watcher
	event dibs.Event
}

// New returns an empty store.
func New() *Store {
	return &Store{names: make(map[string]*entry), watchers: make(map[string][]*watcher)}
}

// Acquire implements dibs.Store.
func (s *Store) Acquire(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
	if err := valid(ctx, c); err != nil {
		return dibs.Answer{}, err
	}
	s.mu.Lock()
	s.sweep()
	now := time.Now()
	e := s.entry(c.Name)
	mail := s.serve(e, now)
	answer := s.acquire(e, c, now)
	s.forget(c.Name, e)
	s.mu.Unlock()
	send(mail)
	return answer, nil
}

func valid(ctx context.Context, c dibs.Claim) error {
	if err := dibs.CheckName(c.Name); err != nil {
		return err
	}
	if c.Weight < 1 || c.Weight > c.Limit {
		return fmt.Errorf("%w: claim on %q weighs %d of %d", dibs.ErrInvalid, c.Name, c.Weight, c.Limit)
	}
	if c.TTL <= 0 {
		return fmt.Errorf("%w: claim on %q for %v", dibs.ErrInvalid, c.Name, c.TTL)
	}
	if err := gone(ctx, "acquire", c.Name); err != nil {
		return err
	}
	if !c.Until.IsZero() && time.Now().After(c.Until) {
		return &dibs.UnavailableError{Op: "acquire", Name: c.Name, Cause: errLate}
	}
	return nil
}

var errLate = errors.New("the claim is void: it came too late")

func gone(ctx context.Context, op, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	return &dibs.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx)}
}

// acquire answers a claim once expired holders and served waiters are out of the
// way: if there is a queue now, its head does not fit yet.
func (s *Store) acquire(e *entry, c dibs.Claim, now time.Time) dibs.Answer {
	if i := e.holding(c.Token); i >= 0 {
		h := &e.holders[i]
		h.expires = later(h.expires, now.Add(c.TTL))
		return dibs.Answer{Held: true, Fence: s.mint(now)}
	}
	if len(e.queue) == 0 && e.fits(c) {
		e.holders = append(e.holders, holder{c.Token, c.Weight, now.Add(c.TTL)})
		return dibs.Answer{Held: true, Fence: s.mint(now)}
	}
	var answer dibs.Answer
	if len(e.holders) > 0 {
		first := e.first()
		answer.Holder, answer.Remaining = first.token, first.expires.Sub(now)
	}
	if !c.Queue {
		return answer
	}
	i := e.waiting(c.Token)
	if i < 0 {
		s.ticket++
		i = len(e.queue)
		e.queue = append(e.queue, place{claim: c, ticket: s.ticket, joined: now})
	}
	e.queue[i].seen = now
	answer.Ticket, answer.Position = e.queue[i].ticket, i+1
	return answer
}

// Abandon implements dibs.Store.
func (s *Store) Abandon(ctx context.Context, c dibs.Claim) error {
	if err := gone(ctx, "abandon", c.Name); err != nil {
		return err
	}
	s.end(c.Name, func(e *entry, _ time.Time) bool {
		if i := e.waiting(c.Token); i >= 0 {
			e.queue = slices.Delete(e.queue, i, i+1)
		}
		return e.drop(c.Token)
	})
	return nil
}

// Release implements dibs.Store.
func (s *Store) Release(ctx context.Context, r dibs.Release) (bool, error) {
	if err := gone(ctx, "release", r.Name); err != nil {
		return false, err
	}
	freed := s.end(r.Name, func(e *entry, now time.Time) bool {
		if r.Keep <= 0 {
			return e.drop(r.Token)
		}
		i := e.holding(r.Token)
		if i >= 0 {
			e.holders[i].expires = now.Add(r.Keep)
		}
		return i >= 0
	})
	return freed, nil
}

// end runs f, which ends something, and serves who fits then.
func (s *Store) end(name string, f func(*entry, time.Time) bool) bool {
	s.mu.Lock()
	now := time.Now()
	e := s.entry(name)
	e.expire(now)
	ended := f(e, now)
	mail := s.serve(e, now)
	if ended && len(mail) == 0 && len(e.queue) > 0 {
		mail = append(mail, s.to(e.queue[0].claim, dibs.Event{Kind: dibs.Look}))
	}
	s.forget(name, e)
	s.mu.Unlock()
	send(mail)
	return ended
}

// Extend implements dibs.Store.
func (s *Store) Extend(ctx context.Context, holds []dibs.Hold) []error {
	errs := make([]error, len(holds))
	if err := gone(ctx, "extend", ""); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for i, hold := range holds {
		errs[i] = dibs.ErrLost
		e := s.names[hold.Name]
		if e == nil {
			continue
		}
		e.expire(now)
		if j := e.holding(hold.Token); j >= 0 {
			h := &e.holders[j]
			h.expires = later(h.expires, now.Add(hold.TTL))
			errs[i] = nil
		}
	}
	return errs
}

// Watch implements dibs.Store.
func (s *Store) Watch(ctx context.Context, client string, on func(dibs.Event)) error {
	w := &watcher{on: on}
	s.mu.Lock()
	s.watchers[client] = append(s.watchers[client], w)
	s.mu.Unlock()
	on(dibs.Event{Kind: dibs.Up})
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(s.watchers[client]), func(o *watcher) bool { return o == w })
	if len(left) == 0 {
		delete(s.watchers, client)
	} else {
		s.watchers[client] = left
	}
	return context.Cause(ctx)
}

// Inspect implements dibs.Store.
func (s *Store) Inspect(ctx context.Context, name string) (dibs.State, error) {
	if err := dibs.CheckName(name); err != nil {
		return dibs.State{}, err
	}
	if err := gone(ctx, "inspect", name); err != nil {
		return dibs.State{}, err
	}
	const most = 100
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.entry(name)
	e.expire(now)
	state := dibs.State{Name: name, Fence: s.fence, Waiting: len(e.queue)}
	for _, h := range e.holders {
		state.Holders = append(state.Holders, dibs.Holder{
			Token: h.token, Label: dibs.LabelOf(h.token), Remaining: h.expires.Sub(now),
		})
	}
	for _, p := range e.queue[:min(most, len(e.queue))] {
		state.Waiters = append(state.Waiters, dibs.Waiter{
			Token: p.claim.Token, Label: dibs.LabelOf(p.claim.Token), Waited: now.Sub(p.joined),
		})
	}
	s.forget(name, e)
	return state, nil
}

// List implements dibs.Store.
func (s *Store) List(ctx context.Context, pattern string) ([]string, error) {
	if err := gone(ctx, "list", ""); err != nil {
		return nil, err
	}
	// A slash is no separator in names.
	flat := strings.NewReplacer("/", "\x00")
	pattern = flat.Replace(pattern)
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, e := range s.names {
		matches, err := path.Match(pattern, flat.Replace(name))
		if err != nil {
			return nil, fmt.Errorf("%w: pattern %q: %w", dibs.ErrInvalid, pattern, err)
		}
		e.expire(time.Now())
		if matches && len(e.holders) > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// entry returns the entry of a name, a new one that is kept if it is used.
func (s *Store) entry(name string) *entry {
	e := s.names[name]
	if e == nil {
		e = new(entry)
		s.names[name] = e
	}
	return e
}

// forget drops an entry that says nothing.
func (s *Store) forget(name string, e *entry) {
	if len(e.holders) == 0 && len(e.queue) == 0 {
		delete(s.names, name)
	}
}

// sweep looks at a few names, so that those whose owners are gone do not pile up.
func (s *Store) sweep() {
	looks := 2
	for name, e := range s.names {
		if looks--; looks < 0 {
			return
		}
		e.expire(time.Now())
		s.forget(name, e)
	}
}

// serve gives the name to the waiters that fit, in order.
func (s *Store) serve(e *entry, now time.Time) []message {
	var mail []message
	e.expire(now)
	for len(e.queue) > 0 && e.fits(e.queue[0].claim) {
		p := e.queue[0]
		e.queue = slices.Delete(e.queue, 0, 1)
		e.holders = append(e.holders, holder{p.claim.Token, p.claim.Weight, now.Add(p.claim.HandoffTTL())})
		mail = append(mail, s.to(p.claim, dibs.Event{Kind: dibs.Granted, Fence: s.mint(now), Ticket: p.ticket}))
	}
	return mail
}

func (s *Store) to(c dibs.Claim, e dibs.Event) message {
	e.Token = c.Token
	return message{to: s.watchers[c.Client], event: e}
}

func send(mail []message) {
	for _, m := range mail {
		for _, w := range m.to {
			w.on(m.event)
		}
	}
}

// mint makes a fence: it grows with the clock, and also when the clock does not.
func (s *Store) mint(now time.Time) uint64 {
	s.fence = max(s.fence+1, uint64(now.UnixMicro()))
	return s.fence
}

// expire drops the holders whose time is over, and the waiters that gave no sign
// of life for too long.
func (e *entry) expire(now time.Time) {
	e.holders = slices.DeleteFunc(e.holders, func(h holder) bool { return !now.Before(h.expires) })
	e.queue = slices.DeleteFunc(e.queue, func(p place) bool { return now.Sub(p.seen) >= dibs.ClaimTTL })
}

func (e *entry) fits(c dibs.Claim) bool {
	used := 0
	for _, h := range e.holders {
		used += h.weight
	}
	return used <= c.Limit-c.Weight
}

func (e *entry) holding(token string) int {
	return slices.IndexFunc(e.holders, func(h holder) bool { return h.token == token })
}

func (e *entry) waiting(token string) int {
	return slices.IndexFunc(e.queue, func(p place) bool { return p.claim.Token == token })
}

// first returns the holder that expires first.
func (e *entry) first() holder {
	return slices.MinFunc(e.holders, func(a, b holder) int { return a.expires.Compare(b.expires) })
}

func (e *entry) drop(token string) bool {
	i := e.holding(token)
	if i < 0 {
		return false
	}
	e.holders = slices.Delete(e.holders, i, i+1)
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
