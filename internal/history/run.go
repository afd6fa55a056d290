package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// Run lets clients of the store do what the plan says, and fails the test for each
// contradiction in what they were told. It returns the history.
func Run(t testing.TB, store driver.Store, plan Plan) History {
	t.Helper()
	h, err := Record(t.Context(), store, plan)
	if err != nil {
		t.Errorf("seed %d: %v", plan.Seed, err)
	}
	report(t, plan, Check(h))
	return h
}

// report fails the test for violations, and tells the first of them.
func report(t testing.TB, plan Plan, violations []Violation) {
	t.Helper()
	const most = 10
	for _, v := range violations[:min(most, len(violations))] {
		t.Errorf("seed %d: %v", plan.Seed, v)
	}
	if more := len(violations) - most; more > 0 {
		t.Errorf("seed %d: and %d more", plan.Seed, more)
	}
}

// Record lets clients of the store do what the plan says, and returns what came of
// it. Its error is a client that could not be closed. The store has to be at nobody
// else's service as far as the plan's names go.
func Record(ctx context.Context, store driver.Store, plan Plan) (History, error) {
	plan = plan.withDefaults()
	r := &runner{ctx: ctx, store: store, plan: plan, rec: NewRecorder()}
	for i := range plan.Clients {
		r.seats = append(r.seats, &seat{client: r.open(), mortal: i%2 == 1})
	}
	var group sync.WaitGroup
	for i := range plan.Workers {
		share := (plan.Ops + plan.Workers - 1 - i) / plan.Workers
		w := worker{runner: r, id: i, seat: r.seats[i%len(r.seats)]}
		group.Go(func() { w.run(share) })
	}
	group.Wait()
	for _, name := range plan.names() {
		group.Go(func() { r.crowd(name) })
	}
	group.Wait()
	if plan.Stay {
		time.Sleep(arrived)
	}
	err := r.closeAll()
	r.settle()
	return r.rec.History(), err
}

// A runner carries out a plan.
type runner struct {
	ctx   context.Context
	store driver.Store
	plan  Plan
	rec   *Recorder
	seats []*seat
}

// A seat is where a client sits, until it is closed and another one takes it.
type seat struct {
	mortal bool

	mu     sync.Mutex
	client *dibs.Client
	before int // clients that had the seat
}

func (s *seat) get() *dibs.Client {
	c, _ := s.now()
	return c
}

// now returns the client, and how many had the seat before it.
func (s *seat) now() (*dibs.Client, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client, s.before
}

// replace gives the seat to another client, and returns the one that had it.
func (s *seat) replace(c *dibs.Client) *dibs.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.client
	s.client, s.before = c, s.before+1
	return old
}

func (r *runner) open() *dibs.Client { return dibs.New(r.store, dibs.TTL(longTTL)) }

// crowd lets many queue for a name and give up, while one holds it: so that a run
// always ends with something that could have been left behind.
func (r *runner) crowd(name string) {
	holder := worker{runner: r, seat: r.seats[0]}
	holder.take(step{names: []string{name}, weight: 1, limit: 1, ttl: longTTL, during: func() {
		var group sync.WaitGroup
		for i, s := range r.seats {
			w := worker{runner: r, seat: s}
			give := step{names: []string{name}, weight: 1, limit: 1, ttl: longTTL, limited: patience}
			give.manner = []manner{wait, cancelled, deadline}[i%3]
			group.Go(func() { w.take(give, fmt.Sprintf("end.%d", i)) })
		}
		group.Wait()
	}}, "end")
}

func (r *runner) closeAll() error {
	errs := make([]error, len(r.seats))
	for i, s := range r.seats {
		op := r.rec.Call(Op{Verb: Close, Label: fmt.Sprintf("seat %d", i)})
		errs[i] = s.get().Close()
		r.rec.Return(op, errs[i])
	}
	return errors.Join(errs...)
}

// settle looks at each name when nobody asks any more. What had a short TTL, or a
// MinHold, may end by itself before; what was left behind by mistake lives for
// seconds.
func (r *runner) settle() {
	const every = 10 * time.Millisecond
	for end := time.Now().Add(10 * (longest + mostMinHold)); ; time.Sleep(every) {
		left := 0
		var last []Op
		for _, name := range r.plan.names() {
			op := r.final(name)
			last, left = append(last, op), left+len(op.Tokens)
		}
		if left > 0 && time.Now().Before(end) {
			continue
		}
		for _, op := range last {
			r.rec.Return(r.rec.Call(op), op.Err)
		}
		return
	}
}

func (r *runner) final(name string) Op {
	state, err := r.store.Inspect(r.ctx, name)
	op := Op{Verb: Final, Names: []string{name}, Err: err}
	for _, h := range state.Holders {
		op.Tokens = append(op.Tokens, h.Token)
	}
	for _, w := range state.Waiters {
		op.Tokens = append(op.Tokens, w.Token)
	}
	return op
}

// A worker does one step after another.
type worker struct {
	*runner
	id   int
	seat *seat
}

func (w *worker) run(steps int) {
	random := rand.New(rand.NewPCG(w.plan.Seed, uint64(w.id)))
	for i := range steps {
		s := w.plan.draw(random, w.seat.mortal)
		label := fmt.Sprintf("w%d.%d", w.id, i)
		switch {
		case s.closes:
			w.close(label)
		case s.breaks:
			w.breaks(s, label)
		default:
			w.take(s, label)
		}
	}
}

// close puts another client into the seat, and closes this one while others of its
// workers are in the middle of something.
func (w *worker) close(label string) {
	old := w.seat.replace(w.open())
	op := w.rec.Call(Op{Verb: Close, Label: label})
	w.rec.Return(op, old.Close())
}

// breaks ends the holding of somebody.
func (w *worker) breaks(s step, label string) {
	c, name := w.seat.get(), s.names[0]
	state, err := c.Inspect(w.ctx, name)
	if err != nil || len(state.Holders) == 0 {
		return
	}
	victim := state.Holders[s.pick%len(state.Holders)]
	if victim.Fence == 0 {
		return // the store does not know it
	}
	op := w.rec.Call(Op{Verb: Break, Label: label, Names: []string{name}, Token: victim.Token, Fences: []uint64{victim.Fence}})
	broke, err := c.Revoke(w.ctx, name, victim.Fence)
	w.rec.Return(op, err)
	op.Broke = broke
}

// take asks for a lease, works with it if it gets it, and gives it back.
func (w *worker) take(s step, label string) {
	c, before := w.seat.now()
	if s.again { // a token belongs to one client: what that one has sent may arrive late
		s.token = fmt.Sprintf("again:%d:w%d", before, w.id)
	}
	op := w.rec.Call(Op{
		Verb: Take, Label: label, Names: s.names, Weight: s.weight, Limit: s.limit,
		Try: s.manner == try || s.manner == attempts, TTL: max(s.ttl, s.minHold), MinHold: s.minHold,
	})
	lease, err := w.ask(c, s, op)
	w.rec.Return(op, err)
	if err != nil {
		return
	}
	op.Token, op.Fences = lease.Token(), fences(lease, s.names)
	a := activity{worker: w, client: c, lease: lease, take: op, step: s}
	a.work()
}

func fences(lease *dibs.Lease, names []string) (all []uint64) {
	for _, name := range names {
		all = append(all, lease.FenceOf(name))
	}
	return all
}

// ask asks for the lease of a step, in its manner.
func (w *worker) ask(c *dibs.Client, s step, op *Op) (*dibs.Lease, error) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	options := w.options(s, op)
	switch s.manner {
	case attempts:
		options = append(options, dibs.Attempts(1+s.pick%3, s.limited/4))
	case wait:
		options = append(options, dibs.Wait(s.limited))
	case cancelled:
		defer time.AfterFunc(s.limited, cancel).Stop()
	case deadline:
		ctx, cancel = context.WithTimeout(ctx, s.limited)
		defer cancel()
	}
	return lockOf(c, s)(ctx, options...)
}

func (w *worker) options(s step, op *Op) []dibs.Option {
	options := []dibs.Option{dibs.TTL(s.ttl), dibs.Label(op.Label), dibs.MinHold(s.minHold)}
	if s.expires {
		options = append(options, dibs.NoRenew())
	}
	if s.token != "" && (s.manner != attempts || len(w.store.Groups(s.names)) == 1) {
		options = append(options, dibs.Token(s.token))
	}
	if len(w.store.Groups(s.names)) > 1 {
		return options // a ticket of some of the names says nothing of the others
	}
	return append(options, dibs.Observe(dibs.Hooks{Waiting: func(e dibs.Waiting) {
		op.Ticket, op.Queued = e.Ticket, w.rec.Now()
	}}))
}

// A lock is a method that takes a lease.
type lock func(context.Context, ...dibs.Option) (*dibs.Lease, error)

// lockOf returns the method that takes what a step wants.
func lockOf(c *dibs.Client, s step) lock {
	patiently, once := locksOf(c, s)
	if s.manner == try {
		return once
	}
	return patiently
}

func locksOf(c *dibs.Client, s step) (patiently, once lock) {
	name := s.names[0]
	switch s.primitive {
	case mutex:
		m := c.Mutex(name)
		return m.Lock, m.TryLock
	case reader:
		m := c.RWMutex(name)
		return m.RLock, m.TryRLock
	case writer:
		m := c.RWMutex(name)
		return m.Lock, m.TryLock
	case set:
		all := c.All(s.names...)
		return all.Lock, all.TryLock
	}
	permits := c.Semaphore(name, s.limit)
	some := func(acquire func(context.Context, int, ...dibs.Option) (*dibs.Lease, error)) lock {
		return func(ctx context.Context, options ...dibs.Option) (*dibs.Lease, error) {
			return acquire(ctx, s.weight, options...)
		}
	}
	return some(permits.Acquire), some(permits.TryAcquire)
}

// An activity is what a worker does with a lease.
type activity struct {
	*worker
	client *dibs.Client
	lease  *dibs.Lease
	take   *Op
	step   step
}

func (a *activity) work() {
	if a.step.work > 0 {
		time.Sleep(a.step.work)
	}
	if a.step.during != nil {
		a.step.during()
	}
	if a.step.attaches {
		a.attach()
	}
	if a.step.looks {
		a.look()
	}
	if a.step.changes {
		a.change()
	}
	a.check()
	op := a.begin(Free)
	a.rec.Return(op, a.lease.Unlock())
}

func (a *activity) begin(verb Verb) *Op {
	return a.rec.Call(Op{Verb: verb, Of: a.take.ID, Label: a.take.Label, Names: a.take.Names, Token: a.take.Token})
}

// check asks the lease whether it holds.
func (a *activity) check() {
	op := a.begin(Probe)
	a.rec.Return(op, a.lease.Err())
}

// attach has another client extend the lease, once.
func (a *activity) attach() {
	other := a.seats[a.step.pick%len(a.seats)&^1].get() // a mortal one would release it when it is closed
	lease, err := other.Attach(a.take.Names[0], a.lease.Token(), dibs.NoRenew())
	if err == nil {
		_ = lease.Extend(a.ctx, a.step.ttl) // it may have ended, or the client was closed
	}
}

// look asks the store whether it knows the lease, on each of its names.
func (a *activity) look() {
	for _, name := range a.take.Names {
		op := a.begin(Look)
		op.Names = []string{name}
		state, err := a.client.Inspect(a.ctx, name)
		a.rec.Return(op, err)
		for _, h := range state.Holders {
			op.Tokens = append(op.Tokens, h.Token)
		}
	}
}

// change makes a writer a reader, and the other way round.
func (a *activity) change() {
	m := a.client.RWMutex(a.step.names[0])
	op := Op{Verb: Change, Of: a.take.ID, Label: a.take.Label, Names: a.take.Names, Token: a.take.Token, TTL: a.take.TTL}
	turn := m.TryUpgrade
	switch a.step.primitive {
	case reader:
		op.Weight, op.Limit = share(writer)
	case writer:
		op.Weight, op.Limit = share(reader)
		turn = m.Downgrade
	default:
		return
	}
	a.check()
	changed := a.rec.Call(op)
	err := turn(a.ctx, a.lease)
	a.rec.Return(changed, err)
	changed.Fences = fences(a.lease, a.take.Names)
	time.Sleep(a.step.limited / 4)
}
