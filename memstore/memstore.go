// Package memstore keeps claims in memory: for tests, where it is exact and
// instant inside a testing/synctest bubble, for examples, and for programs of one
// process. It excludes nobody outside the process.
package memstore

import (
	"cmp"
	"context"
	"crypto/rand"
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
	clock    func() time.Time
	mu       sync.Mutex
	node     string    // which store it is, to a quorum
	since    time.Time // when it last forgot everything
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
	client  string
	weight  int
	alone   bool
	fence   uint64
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

// An Option adjusts a store.
type Option func(*Store)

// Clock makes the store keep time by another clock than time.Now: to see what one that
// drifts or jumps does to those who hold.
func Clock(now func() time.Time) Option { return func(s *Store) { s.clock = now } }

// New returns an empty store.
func New(options ...Option) *Store {
	s := &Store{clock: time.Now, names: make(map[string]*entry), watchers: make(map[string][]*watcher), node: rand.Text()}
	for _, o := range options {
		o(s)
	}
	return s
}

// Restart makes the store forget everything, as a server does that comes back without
// its data. Who watches goes on.
func (s *Store) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.names)
	s.fence, s.ticket = 0, 0
	s.node, s.since = rand.Text(), s.clock()
}

// Groups implements dibs.Store: this one can take any names in one step.
func (s *Store) Groups(names []string) [][]string { return [][]string{names} }

// Acquire implements dibs.Store.
func (s *Store) Acquire(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
	if err := valid(ctx, c); err != nil {
		return dibs.Answer{}, err
	}
	s.mu.Lock()
	s.sweep()
	now := s.clock()
	var mail []message
	var wanted []*entry
	for _, name := range names(c) {
		e := s.entry(name)
		mail = append(mail, s.serve(e, now, e.expire(now))...)
		wanted = append(wanted, e)
	}
	answer, more, err := s.vote(wanted, c, now)
	for _, name := range names(c) {
		s.forget(name)
	}
	s.mu.Unlock()
	send(append(mail, more...))
	return answer, err
}

// vote answers a claim, and first a ballot that is with it.
func (s *Store) vote(wanted []*entry, c dibs.Claim, now time.Time) (answer dibs.Answer, mail []message, err error) {
	if c.Ballot == nil {
		return s.acquire(wanted, c, now), nil, nil
	}
	for _, e := range wanted {
		held := e.holding(c.Token) >= 0
		if left := s.forgetful(c, now); left > 0 && !held {
			return answer, nil, &dibs.UnavailableError{
				Op: "acquire", Name: c.Name, Refused: true, Cause: &dibs.RestartedError{Node: s.node, Left: left},
			}
		}
		if c.Ballot.Yield && held && c.Queue && len(e.queue) > 0 && e.queue[0].before(c.Ballot.Ticket, c.Token) {
			e.drop(c.Token)
			s.queue([]*entry{e}, c, now)
			mail = append(mail, s.serveBy(e, now, true, c.Ballot)...)
		}
	}
	answer = s.acquire(wanted, c, now)
	answer.Node = s.node
	if !answer.Held {
		answer.Fence = s.fence
	}
	return answer, mail, nil
}

// forgetful is how long the store must not grant a claim yet: it may have forgotten a
// lease.
func (s *Store) forgetful(c dibs.Claim, now time.Time) time.Duration {
	if c.Ballot == nil || s.since.IsZero() {
		return 0
	}
	return c.Ballot.Memory - now.Sub(s.since)
}

func names(c dibs.Claim) []string { return append([]string{c.Name}, c.With...) }

func valid(ctx context.Context, c dibs.Claim) error {
	for _, name := range names(c) {
		if err := dibs.CheckName(name); err != nil {
			return err
		}
	}
	if c.Weight < 1 || c.Weight > c.Limit || c.Limit > dibs.Unlimited {
		return fmt.Errorf("%w: claim on %q weighs %d of %d", dibs.ErrInvalid, c.Name, c.Weight, c.Limit)
	}
	if len(c.With) > 0 && !c.Alone() {
		return fmt.Errorf("%w: claim on %q and others does not hold alone", dibs.ErrInvalid, c.Name)
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
// way: if there is a queue now, its head does not fit yet, or has to ask.
func (s *Store) acquire(wanted []*entry, c dibs.Claim, now time.Time) dibs.Answer {
	var busy dibs.Answer
	free := true
	for i, e := range wanted {
		if e.open(c) {
			continue
		}
		name, left := names(c)[i], dibs.ClaimTTL // a head that died may block it for so long
		holder := ""
		if len(e.holders) > 0 {
			first := e.first()
			holder, left = first.token, first.expires.Sub(now)
		}
		if free || left < busy.Remaining {
			busy = dibs.Answer{Name: name, Holder: holder, Remaining: left}
		}
		free = false
	}
	switch {
	case free:
		return s.take(wanted, c, now)
	case c.Queue:
		busy.Ticket, busy.Position = s.queue(wanted, c, now)
	}
	return busy
}

// open reports whether a claim may have the name now, or has it.
func (e *entry) open(c dibs.Claim) bool {
	if e.holding(c.Token) >= 0 {
		return true
	}
	return e.fits(c) && (len(e.queue) == 0 || e.queue[0].claim.Token == c.Token)
}

// take makes a token the holder, or makes it hold longer.
func (s *Store) take(wanted []*entry, c dibs.Claim, now time.Time) dibs.Answer {
	fence := s.mint(now, c.Ballot)
	for _, e := range wanted {
		e.leave(c.Token)
		if i := e.holding(c.Token); i >= 0 {
			h := &e.holders[i]
			h.expires, h.fence = later(h.expires, now.Add(c.TTL)), fence
			continue
		}
		e.hold(c, fence, now.Add(c.TTL))
	}
	return dibs.Answer{Held: true, Fence: fence}
}

// queue gives a claim its place in each queue, the same in all, or keeps it.
func (s *Store) queue(wanted []*entry, c dibs.Claim, now time.Time) (ticket uint64, position int) {
	for _, e := range wanted {
		if i := e.waiting(c.Token); i >= 0 {
			ticket = e.queue[i].ticket
		}
	}
	switch {
	case ticket != 0:
	case c.Ballot != nil:
		ticket = c.Ballot.Ticket
	default:
		s.ticket = max(s.ticket+1, uint64(now.UnixMicro()))
		ticket = s.ticket
	}
	for _, e := range wanted {
		i := e.waiting(c.Token)
		if i < 0 {
			i, _ = slices.BinarySearchFunc(e.queue, true, func(p place, _ bool) int {
				if p.before(ticket, c.Token) {
					return -1
				}
				return 1
			})
			e.queue = slices.Insert(e.queue, i, place{claim: c, ticket: ticket, joined: now})
		}
		e.queue[i].seen = now
		position = max(position, i+1)
	}
	return ticket, position
}

// Reweigh implements dibs.Store.
func (s *Store) Reweigh(ctx context.Context, c dibs.Claim) (dibs.Answer, error) {
	if err := valid(ctx, c); err != nil {
		return dibs.Answer{}, err
	}
	var answer dibs.Answer
	s.change(c.Name, c.Ballot, func(e *entry, now time.Time) bool {
		i := e.holding(c.Token)
		var h holder
		if i >= 0 {
			h = e.holders[i]
			e.drop(c.Token)
		}
		if i < 0 || !e.fits(c) {
			answer.Name = c.Name
			if len(e.holders) > 0 {
				answer.Holder, answer.Remaining = e.first().token, e.first().expires.Sub(now)
			}
			if i >= 0 {
				e.holders = append(e.holders, h)
			}
			return false
		}
		answer = dibs.Answer{Held: true, Fence: s.mint(now, c.Ballot)}
		e.hold(c, answer.Fence, later(h.expires, now.Add(c.TTL)))
		return true
	})
	return answer, nil
}

// Break implements dibs.Store.
func (s *Store) Break(ctx context.Context, name string, fence uint64) (bool, error) {
	if err := dibs.CheckName(name); err != nil {
		return false, err
	}
	if err := gone(ctx, "break", name); err != nil {
		return false, err
	}
	var told []message
	broken := s.change(name, nil, func(e *entry, _ time.Time) bool {
		i := slices.IndexFunc(e.holders, func(h holder) bool { return fence != 0 && h.fence == fence })
		if i < 0 {
			return false
		}
		h := e.holders[i]
		told = append(told, s.to(h.client, dibs.Event{Kind: dibs.Broken, Token: h.token, Fence: fence}))
		return e.drop(h.token)
	})
	send(told)
	return broken, nil
}

// Abandon implements dibs.Store.
func (s *Store) Abandon(ctx context.Context, c dibs.Claim) error {
	if err := gone(ctx, "abandon", c.Name); err != nil {
		return err
	}
	for _, name := range names(c) {
		s.change(name, c.Ballot, func(e *entry, _ time.Time) bool {
			left, dropped := e.leave(c.Token), e.drop(c.Token)
			return left || dropped
		})
	}
	return nil
}

// Release implements dibs.Store.
func (s *Store) Release(ctx context.Context, r dibs.Release) (bool, error) {
	if err := gone(ctx, "release", r.Name); err != nil {
		return false, err
	}
	var told []message
	held := s.change(r.Name, r.Ballot, func(e *entry, now time.Time) bool {
		i := e.holding(r.Token)
		if r.Keep <= 0 || i < 0 {
			return e.drop(r.Token)
		}
		e.holders[i].token += dibs.Kept
		e.holders[i].expires = now.Add(r.Keep)
		if len(e.queue) > 0 { // the first asks, to learn when the name is free
			told = append(told, s.look(e.queue[0]))
		}
		return true
	})
	send(told)
	return held, nil
}

// change runs f, which may end something, and serves who fits then.
func (s *Store) change(name string, b *dibs.Ballot, f func(*entry, time.Time) bool) bool {
	s.mu.Lock()
	now := s.clock()
	e := s.entry(name)
	expired := e.expire(now)
	changed := f(e, now)
	mail := s.serveBy(e, now, expired || changed, b)
	s.forget(name)
	s.mu.Unlock()
	send(mail)
	return changed
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
	now := s.clock()
	for i, hold := range holds {
		errs[i] = dibs.ErrLost
		e := s.names[hold.Name]
		if e == nil {
			continue
		}
		if j := e.holding(hold.Token); j >= 0 && now.Before(e.holders[j].expires) {
			h := &e.holders[j]
			h.client = cmp.Or(hold.Client, h.client)
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
	now := s.clock()
	e := s.entry(name)
	state := dibs.State{Name: name, Fence: s.fence}
	var live []holder
	for _, h := range e.holders {
		if now.Before(h.expires) {
			live = append(live, h)
		}
	}
	slices.SortStableFunc(live, func(a, b holder) int { return a.expires.Compare(b.expires) })
	state.Holding = len(live)
	for _, h := range live[:min(most, len(live))] {
		weight := h.weight
		if h.alone {
			weight = 0
		}
		state.Holders = append(state.Holders, dibs.Holder{
			Token: h.token, Label: dibs.LabelOf(h.token), Weight: weight, Fence: h.fence, Remaining: h.expires.Sub(now),
		})
	}
	for _, p := range e.queue {
		if p.dead(now) {
			continue
		}
		if state.Waiting++; state.Waiting <= most {
			state.Waiters = append(state.Waiters, dibs.Waiter{
				Token: p.claim.Token, Label: dibs.LabelOf(p.claim.Token), Waited: now.Sub(p.joined),
			})
		}
	}
	s.forget(name)
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
		now := s.clock()
		live := func(h holder) bool { return now.Before(h.expires) }
		if matches && slices.ContainsFunc(e.holders, live) {
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
func (s *Store) forget(name string) {
	if e := s.names[name]; e != nil && len(e.holders) == 0 && len(e.queue) == 0 {
		delete(s.names, name)
	}
}

// sweep looks at a few names, so that those whose owners are gone do not pile up.
// Who still waits there finds out by asking.
func (s *Store) sweep() {
	looks := 2
	now := s.clock()
	for name, e := range s.names {
		if looks--; looks < 0 {
			return
		}
		if len(e.queue) == 0 || !slices.ContainsFunc(e.queue, func(p place) bool { return !p.dead(now) }) {
			e.expire(now)
			s.forget(name)
		}
	}
}

// serve gives the name to the waiters that fit, in order. The first that does not
// fit blocks those behind it, or they would overtake it again and again; so does one
// that wants more names. That one is asked to look, if something has changed.
func (s *Store) serve(e *entry, now time.Time, changed bool) []message {
	return s.serveBy(e, now, changed, nil)
}

// serveBy serves by the ballot of who makes room.
func (s *Store) serveBy(e *entry, now time.Time, changed bool, b *dibs.Ballot) []message {
	var mail []message
	for len(e.queue) > 0 && e.fits(e.queue[0].claim) {
		p := e.queue[0]
		if s.forgetful(p.claim, now) > 0 {
			break
		}
		if len(p.claim.With) > 0 {
			if changed {
				mail = append(mail, s.look(p))
			}
			break
		}
		e.queue = slices.Delete(e.queue, 0, 1)
		fence := s.mint(now, cmp.Or(b, p.claim.Ballot))
		e.hold(p.claim, fence, now.Add(p.claim.HandoffTTL()))
		granted := dibs.Event{Kind: dibs.Granted, Token: p.claim.Token, Fence: fence, Ticket: p.ticket}
		if p.claim.Ballot != nil {
			granted.Node = s.node
		}
		mail = append(mail, s.to(p.claim.Client, granted))
		changed = true
	}
	return mail
}

func (s *Store) look(p place) message {
	return s.to(p.claim.Client, dibs.Event{Kind: dibs.Look, Token: p.claim.Token})
}

func (s *Store) to(client string, e dibs.Event) message {
	return message{to: s.watchers[client], event: e}
}

func send(mail []message) {
	for _, m := range mail {
		for _, w := range m.to {
			w.on(m.event)
		}
	}
}

// mint makes a fence: it grows with the clock, and also when the clock does not. That of
// a ballot has the clock of a quorum.
func (s *Store) mint(now time.Time, b *dibs.Ballot) uint64 {
	at := uint64(now.UnixMicro())
	if b != nil {
		at = b.Fence
	}
	s.fence = max(s.fence+1, at)
	return s.fence
}

// expire drops the holders whose time is over, and the waiters that gave no sign
// of life for too long. It reports whether there were any.
func (e *entry) expire(now time.Time) bool {
	before := len(e.holders) + len(e.queue)
	e.holders = slices.DeleteFunc(e.holders, func(h holder) bool { return !now.Before(h.expires) })
	e.queue = slices.DeleteFunc(e.queue, func(p place) bool { return p.dead(now) })
	return len(e.holders)+len(e.queue) < before
}

// before reports whether a place comes before another one: in each store the same, if
// they have their tickets from a quorum.
func (p place) before(ticket uint64, token string) bool {
	return p.ticket < ticket || p.ticket == ticket && p.claim.Token < token
}

func (p place) dead(now time.Time) bool { return now.Sub(p.seen) >= dibs.ClaimTTL }

func (e *entry) fits(c dibs.Claim) bool {
	used := 0
	for _, h := range e.holders {
		if h.alone {
			return false
		}
		used += h.weight
	}
	return used <= c.Limit-c.Weight
}

func (e *entry) hold(c dibs.Claim, fence uint64, expires time.Time) {
	e.holders = append(e.holders, holder{c.Token, c.Client, c.Weight, c.Alone(), fence, expires})
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

func (e *entry) leave(token string) bool {
	i := e.waiting(token)
	if i < 0 {
		return false
	}
	e.queue = slices.Delete(e.queue, i, i+1)
	return true
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
