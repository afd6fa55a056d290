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

// Run executes the plan with clients on the store, and fails the test for each contradiction. It
// returns the history.
func Run(t testing.TB, store driver.Store, plan Plan) History {
	t.Helper()
	h, err := Record(t.Context(), store, plan)
	if err != nil {
		t.Errorf("seed %d: %v", plan.Seed, err)
	}
	report(t, plan, CheckWithin(h, driver.LimitsOf(store)))
	return h
}

// report fails the test for violations, and prints the first few.
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

// Record executes the plan with clients on the store, and returns the history. It returns an error
// if a client could not be closed. No other process may use the plan's names.
func Record(ctx context.Context, store driver.Store, plan Plan) (History, error) {
	plan = plan.withDefaults()
	plan.limits = driver.LimitsOf(store)
	var waiters *Waiters
	if plan.PassesOver {
		waiters = NewWaiters(store)
		store = waiters
	}
	r := &runner{ctx: ctx, store: driver.Complete(store), plan: plan, rec: NewRecorder()}
	for i := range plan.Clients {
		r.clients = append(r.clients, &clientRef{index: i, client: r.open(), closable: i%2 == 1, groups: make(map[string]*group)})
	}
	var group sync.WaitGroup
	for i := range plan.Workers {
		share := (plan.Ops + plan.Workers - 1 - i) / plan.Workers
		w := worker{runner: r, id: i, ref: r.clients[i%len(r.clients)]}
		group.Go(func() { w.run(share) })
	}
	group.Wait()
	for _, name := range plan.names() {
		group.Go(func() { r.contend(name) })
	}
	group.Wait()
	if plan.KeepClients {
		time.Sleep(lateArrival)
	}
	err := r.closeAll()
	r.recordFinal()
	h := r.rec.History()
	for _, op := range h {
		op.PassedOver = waiters != nil && waiters.MayPassOver(op.Token)
	}
	return h, err
}

// A runner executes a plan.
type runner struct {
	ctx     context.Context
	store   *driver.Full
	plan    Plan
	rec     *Recorder
	clients []*clientRef
}

// A clientRef refers to a client, which is replaced when it is closed.
type clientRef struct {
	index    int
	closable bool

	mu         sync.Mutex
	client     *dibs.Client
	generation int               // number of replaced clients
	groups     map[string]*group // the client's cohorts, by name
}

// group returns the client's cohort for a name.
func (s *clientRef) group(name string, plan *Plan) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[name] == nil {
		s.groups[name] = newGroup(s.client, name, batchOf(s.index), time.Duration(s.index%2)*plan.Linger)
		s.groups[name].id = fmt.Sprintf("%d.%d", s.index, s.generation)
	}
	return s.groups[name]
}

func (s *clientRef) get() *dibs.Client {
	c, _ := s.current()
	return c
}

// current returns the client, and how many it replaced.
func (s *clientRef) current() (*dibs.Client, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client, s.generation
}

// replace sets a new client, and returns the old client.
func (s *clientRef) replace(c *dibs.Client) *dibs.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.client
	s.client, s.generation, s.groups = c, s.generation+1, make(map[string]*group)
	return old
}

func (r *runner) open() *dibs.Client {
	return dibs.New(r.store, dibs.TTL(longTTL))
}

// batchOf returns the batch for a client's cohorts.
func batchOf(index int) int { return 1 + index%4 }

// contend lets many clients queue for a held name and give up, so each run ends with operations
// that could leave remains behind.
func (r *runner) contend(name string) {
	holder := worker{runner: r, ref: r.clients[0]}
	holder.acquire(step{names: []string{name}, weight: 1, limit: 1, ttl: longTTL, during: func() {
		var group sync.WaitGroup
		for i, s := range r.clients {
			w := worker{runner: r, ref: s}
			give := step{names: []string{name}, weight: 1, limit: 1, ttl: longTTL, giveUpAfter: maxWait}
			give.waitMode = []waitMode{wait, cancelled, deadline}[i%3]
			group.Go(func() { w.acquire(give, fmt.Sprintf("end.%d", i)) })
		}
		group.Wait()
	}}, "end")
}

func (r *runner) closeAll() error {
	errs := make([]error, len(r.clients))
	for i, s := range r.clients {
		op := r.rec.Call(Op{Verb: Close, Label: fmt.Sprintf("client %d", i)})
		errs[i] = s.get().Close()
		r.rec.Return(op, errs[i])
	}
	return errors.Join(errs...)
}

// recordFinal records each name's state after all clients have stopped. It waits until leases with
// a short TTL or a MinHold have ended; anything left behind by mistake lives for seconds.
func (r *runner) recordFinal() {
	const every = 10 * time.Millisecond
	limit := 10*(longest+mostMinHold) + r.plan.limits.MinTTL + r.plan.limits.Late
	for end := time.Now().Add(limit); ; time.Sleep(every) {
		left := 0
		var last []Op
		for _, name := range r.plan.names() {
			op := r.finalState(name)
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

func (r *runner) finalState(name string) Op {
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

// A worker executes steps in sequence.
type worker struct {
	*runner
	id  int
	ref *clientRef
}

func (w *worker) run(steps int) {
	random := rand.New(rand.NewPCG(w.plan.Seed, uint64(w.id)))
	for i := range steps {
		s := w.plan.draw(random, w.ref.closable)
		label := fmt.Sprintf("w%d.%d", w.id, i)
		switch {
		case s.closes:
			w.close(label)
		case s.revokes:
			w.revoke(s, label)
		default:
			w.acquire(s, label)
		}
	}
}

// close replaces the client, and closes the old client while other workers are using it.
func (w *worker) close(label string) {
	old := w.ref.replace(w.open())
	op := w.rec.Call(Op{Verb: Close, Label: label})
	w.rec.Return(op, old.Close())
}

// revoke revokes a random holder's lease.
func (w *worker) revoke(s step, label string) {
	c, name := w.ref.get(), s.names[0]
	state, err := c.Inspect(w.ctx, name)
	if err != nil || len(state.Holders) == 0 {
		return
	}
	victim := state.Holders[s.pick%len(state.Holders)]
	if victim.Fence == 0 {
		return // the store has no fence for the lease
	}
	op := w.rec.Call(Op{Verb: Revoke, Label: label, Names: []string{name}, Token: string(victim.Token), Fences: []uint64{victim.Fence}})
	broke, err := c.Revoke(w.ctx, name, dibs.Holder{Fence: victim.Fence}, "")
	w.rec.Return(op, err)
	op.Revoked = broke
}

// acquire requests a lease, works with it, and releases it.
func (w *worker) acquire(s step, label string) {
	c, before := w.ref.current()
	if s.reusesToken { // a token belongs to one client, because its requests can arrive late
		s.token = fmt.Sprintf("reused:%d:w%d", before, w.id)
	}
	op := w.rec.Call(Op{
		Verb: Acquire, Label: label, Names: s.names, Weight: s.weight, Limit: s.limit,
		Try: s.waitMode == try || s.waitMode == attempts, TTL: max(s.ttl, s.minHold), MinHold: s.minHold,
	})
	if w.plan.Cohorts && s.usesCohort() {
		w.acquireInCohort(s, op)
		return
	}
	lease, err := w.lock(s, lockOf(c, s), w.options(s, op))
	w.rec.Return(op, err)
	if err != nil {
		return
	}
	op.Token, op.Fences = string(lease.Token()), fences(lease, s.names)
	a := activity{worker: w, client: c, lease: lease, acquire: op, step: s}
	a.work()
}

// usesCohort reports whether a client with cohorts uses a cohort for the step.
func (s step) usesCohort() bool {
	return s.primitive == mutex && s.token == "" && s.minHold == 0 && !s.expires && s.waitMode != attempts
}

func fences(lease *dibs.Lease, names []string) (all []uint64) {
	for _, name := range names {
		all = append(all, lease.FenceOf(name))
	}
	return all
}

// lock requests a step's lease in its wait mode.
func (w *worker) lock(s step, lock lockFunc, options []dibs.Option) (*dibs.Lease, error) {
	ctx, options, cancel := w.limits(s, options)
	defer cancel()
	return lock(ctx, options...)
}

// limits returns a step's context and options for its wait mode.
func (w *worker) limits(s step, options []dibs.Option) (context.Context, []dibs.Option, context.CancelFunc) {
	ctx, cancel := context.WithCancel(w.ctx)
	switch s.waitMode {
	case attempts:
		options = append(options, dibs.Attempts(1+s.pick%3, s.giveUpAfter/4))
	case wait:
		options = append(options, dibs.Wait(s.giveUpAfter))
	case cancelled:
		timer, end := time.AfterFunc(s.giveUpAfter, cancel), cancel
		cancel = func() { timer.Stop(); end() }
	case deadline:
		within, end := context.WithTimeout(ctx, s.giveUpAfter)
		outer := cancel
		ctx, cancel = within, func() { end(); outer() }
	}
	return ctx, options, cancel
}

func (w *worker) options(s step, op *Op) []dibs.Option {
	options := []dibs.Option{dibs.TTL(s.ttl), dibs.Label(op.Label), dibs.MinHold(s.minHold)}
	if s.expires {
		options = append(options, dibs.NoRenew())
	}
	if s.token != "" && (s.waitMode != attempts || len(w.store.Groups(s.names)) == 1) {
		options = append(options, dibs.OwnerToken(s.token))
	}
	if len(w.store.Groups(s.names)) > 1 {
		return options // the ticket belongs to a single group of the names
	}
	return append(options, dibs.Observe(dibs.Hooks{Queued: func(_ context.Context, e dibs.Queued) {
		op.Ticket, op.Queued = e.Ticket, w.rec.Now()
	}}))
}

// A lockFunc is a method for acquiring a lease.
type lockFunc func(context.Context, ...dibs.Option) (*dibs.Lease, error)

// lockOf returns the method for a step's primitive.
func lockOf(c *dibs.Client, s step) lockFunc {
	patiently, once := locksOf(c, s)
	if s.waitMode == try {
		return once
	}
	return patiently
}

func locksOf(c *dibs.Client, s step) (patiently, once lockFunc) {
	name := s.names[0]
	switch s.primitive {
	case mutex:
		m := c.Mutex(name)
		return m.Lock, m.TryLock
	case reader:
		m := c.RWMutex(name)
		return m.Reader().Lock, m.Reader().TryLock
	case writer:
		m := c.RWMutex(name)
		return m.Writer().Lock, m.Writer().TryLock
	case multiLock:
		all := c.All(s.names)
		return all.Lock, all.TryLock
	}
	permits := c.Semaphore(name, s.limit).Permits(s.weight)
	return permits.Lock, permits.TryLock
}

// A heldLease is a lease from a Client or a cohort.
type heldLease interface {
	Err() error
	Unlock() error
}

// An activity is a worker's work with a lease.
type activity struct {
	*worker
	client  *dibs.Client
	lease   heldLease
	acquire *Op
	step    step
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
	if a.step.inspects {
		a.inspect()
	}
	if a.step.resizes {
		a.resize()
	}
	a.check()
	op := a.begin(Release)
	a.rec.Return(op, a.lease.Unlock())
}

func (a *activity) begin(verb Verb) *Op {
	return a.rec.Call(Op{Verb: verb, Of: a.acquire.ID, Label: a.acquire.Label, Names: a.acquire.Names, Token: a.acquire.Token})
}

// check calls the lease's Err.
func (a *activity) check() {
	op := a.begin(Probe)
	a.rec.Return(op, a.lease.Err())
}

// attach lets another client extend the lease once.
func (a *activity) attach() {
	if a.acquire.Cohort != "" {
		return
	}
	other := a.clients[a.step.pick%len(a.clients)&^1].get() // a closable client would release the lease when it is closed
	handle := dibs.NewHandle(a.acquire.Names[0], a.acquire.Token)
	_, _ = other.Attach(a.ctx, handle, dibs.NoRenew(), dibs.TTL(a.step.ttl)) // the lease may have ended, or the client may be closed
}

// inspect checks on each name whether the store reports the lease.
func (a *activity) inspect() {
	for _, name := range a.acquire.Names {
		op := a.begin(Inspect)
		op.Names = []string{name}
		state, err := a.client.Inspect(a.ctx, name)
		a.rec.Return(op, err)
		for _, h := range state.Holders {
			op.Tokens = append(op.Tokens, string(h.Token))
		}
	}
}

// resize turns a writer into a reader, or a reader into a writer.
func (a *activity) resize() {
	lease, ok := a.lease.(*dibs.Lease)
	if !ok {
		return
	}
	op := Op{Verb: Resize, Of: a.acquire.ID, Label: a.acquire.Label, Names: a.acquire.Names, Token: a.acquire.Token, TTL: a.acquire.TTL}
	turn := lease.TryUpgrade
	switch a.step.primitive {
	case reader:
		op.Weight, op.Limit = weightOf(writer)
	case writer:
		op.Weight, op.Limit = weightOf(reader)
		turn = lease.Downgrade
	default:
		return
	}
	a.check()
	changed := a.rec.Call(op)
	err := turn(a.ctx)
	a.rec.Return(changed, err)
	changed.Fences = fences(lease, a.acquire.Names)
	time.Sleep(a.step.giveUpAfter / 4)
}
