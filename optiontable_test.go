package dibs_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/internal/test/carried"
)

// A way is a way to use options: a primitive and a verb.
type way struct {
	places [2]dibs.Place // for the lock and for the call
	run    func(s *scene, lock, call []dibs.Option) error
}

// A scene contains everything a way needs.
type scene struct {
	c      *dibs.Client
	other  *dibs.Client // in another process
	store  *faulty
	ctx    context.Context
	held   func(ctx context.Context) // called while the name is held
	busy   bool                      // another holds the name when the verb is called
	hung   bool                      // the store does not answer from then on
	nested bool                      // ctx carries a lease on the name
	fails  error                     // the work's
	began  time.Time                 // when the verb was called
}

// begin is called immediately before the verb.
func (s *scene) begin() {
	if s.busy {
		_, _ = s.other.Mutex("n").Lock(context.Background())
	}
	s.hang()
	s.began = time.Now()
}

func (s *scene) hang() {
	if s.hung {
		s.store.hangAll()
	}
}

// use reports on a lease, and releases it.
func (s *scene) use(l *dibs.Lease, err error) error {
	if err != nil {
		return err
	}
	s.held(l.Context())
	return l.Unlock()
}

// work is a function that runs under a lock.
func (s *scene) work(ctx context.Context) error {
	s.held(ctx)
	return s.fails
}

type locking func(ctx context.Context, options ...dibs.Option) (*dibs.Lease, error)

// lease is a way that returns a lease.
func lease(places [2]dibs.Place, of func(c *dibs.Client, o []dibs.Option) locking) way {
	return way{places, func(s *scene, lock, call []dibs.Option) error {
		acquire := of(s.c, lock)
		s.begin()
		return s.use(acquire(s.ctx, call...))
	}}
}

// doer is a way that runs a function.
func doer(of func(c *dibs.Client, o []dibs.Option) dibs.Doer) way {
	return way{dibs.LockAndCall, func(s *scene, lock, call []dibs.Option) error {
		d := of(s.c, lock)
		s.begin()
		return d.Do(s.ctx, s.work, call...)
	}}
}

func mutexOf(c *dibs.Client, o []dibs.Option) dibs.Doer { return c.Mutex("n", o...) }

// ways are all the package's functions with options, except those in otherOptions. Each function's
// name is the name that declaredWithOptions returns.
var ways = map[string]way{
	"Mutex.Lock":         lease(dibs.LockAndCall, func(c *dibs.Client, o []dibs.Option) locking { return c.Mutex("n", o...).Lock }),
	"Mutex.TryLock":      lease(dibs.LockAndTry, func(c *dibs.Client, o []dibs.Option) locking { return c.Mutex("n", o...).TryLock }),
	"SharedLock.Lock":    lease(dibs.LockAndCall, func(c *dibs.Client, o []dibs.Option) locking { return c.RWMutex("n", o...).Reader().Lock }),
	"SharedLock.TryLock": lease(dibs.LockAndTry, func(c *dibs.Client, o []dibs.Option) locking { return c.Semaphore("n", 2, o...).Permits(1).TryLock }),
	"MultiMutex.Lock":    lease(dibs.LockAndCall, func(c *dibs.Client, o []dibs.Option) locking { return c.All([]string{"m", "n"}, o...).Lock }),
	"MultiMutex.TryLock": lease(dibs.LockAndTry, func(c *dibs.Client, o []dibs.Option) locking { return c.All([]string{"m", "n"}, o...).TryLock }),
	"Election.Campaign":  lease(dibs.LockAndCall, func(c *dibs.Client, o []dibs.Option) locking { return c.Election("n", o...).Campaign }),
	"Mutex.Do":           doer(mutexOf),
	"SharedLock.Do":      doer(func(c *dibs.Client, o []dibs.Option) dibs.Doer { return c.RWMutex("n", o...).Reader() }),
	"MultiMutex.Do":      doer(func(c *dibs.Client, o []dibs.Option) dibs.Doer { return c.All([]string{"m", "n"}, o...) }),
	"Call": {dibs.LockAndCall, func(s *scene, lock, call []dibs.Option) error {
		s.begin()
		_, err := dibs.Call(s.ctx, mutexOf(s.c, lock), func(ctx context.Context) (int, error) { return 0, s.work(ctx) }, call...)
		return err
	}},
	"Wrap": {dibs.LockAndMany, func(s *scene, lock, call []dibs.Option) error {
		wrapped := dibs.Wrap(func(int) dibs.Doer { return mutexOf(s.c, lock) }, func(ctx context.Context, _ int) error { return s.work(ctx) }, call...)
		s.begin()
		return wrapped(s.ctx, 1)
	}},
	"WrapCall": {dibs.LockAndMany, func(s *scene, lock, call []dibs.Option) error {
		work := func(ctx context.Context, _ int) (int, error) { return 0, s.work(ctx) }
		wrapped := dibs.WrapCall(func(int) dibs.Doer { return mutexOf(s.c, lock) }, work, call...)
		s.begin()
		_, err := wrapped(s.ctx, 1)
		return err
	}},
	"Mutex.Locker": {dibs.LockAndMany, func(s *scene, lock, call []dibs.Option) (err error) {
		defer func() {
			if panicked := recover(); panicked != nil {
				err = panicked.(error)
			}
		}()
		locker := s.c.Mutex("n", lock...).Locker(s.ctx, call...)
		s.begin()
		locker.Lock()
		defer locker.Unlock()
		s.held(s.ctx)
		return nil
	}},
	"Election.Run": {dibs.LockAndCall, func(s *scene, lock, call []dibs.Option) error {
		// The first campaign only: Run would repeat it.
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		var failed error
		hooks := dibs.Observe(dibs.Hooks{TermFailed: func(_ context.Context, e dibs.TermFailed) {
			failed = e.Err
			cancel()
		}})
		e := s.c.Election("n", append(lock, hooks)...)
		s.begin()
		err := e.Run(ctx, func(ctx context.Context) error {
			defer cancel()
			return s.work(ctx)
		}, call...)
		if failed == nil && ctx.Err() != nil { // the term is over
			return nil
		}
		return errors.Join(failed, err)
	}},
	"Once.Do": {dibs.OnceAndDo, func(s *scene, lock, call []dibs.Option) error {
		o := s.c.Once("n", 10*time.Millisecond, lock...)
		s.begin()
		return o.Do(s.ctx, s.work, call...)
	}},
	"Lease.Yield": {dibs.NoneYield, func(s *scene, _, call []dibs.Option) error {
		options := []dibs.Option{{}}
		if s.nested {
			options[0] = dibs.Reentrant()
		}
		return s.c.Mutex("n").Do(s.ctx, func(ctx context.Context) error {
			rival := queue(func() (*dibs.Lease, error) { return s.other.Mutex("n").Lock(context.Background()) })
			if !s.busy {
				go func() {
					<-rival.done
					s.hang()
					_ = rival.lease.Unlock()
				}()
			}
			s.began = time.Now()
			if err := carried.Yield(ctx, "n", call...); err != nil {
				return err
			}
			return s.work(ctx)
		}, options...)
	}},
	"Client.Attach": {dibs.NoneAttach, func(s *scene, _, call []dibs.Option) error {
		if s.busy {
			s.began = time.Now()
		}
		name := "n"
		if s.nested {
			name = "another"
		}
		first, err := s.other.Mutex(name).Lock(s.ctx, dibs.TTL(10*time.Second), dibs.NoRenew())
		if err != nil {
			return err
		}
		s.hang()
		s.began = time.Now()
		l, err := s.c.Attach(s.ctx, first.Handle(), call...)
		if err != nil {
			return err
		}
		return errors.Join(first.Detach(), s.use(l, nil))
	}},
}

// otherOptions are functions with options that are no ways: they make the values that the ways use,
// or they use nothing.
var otherOptions = []string{
	"New", "Client.Mutex", "Client.RWMutex", "Client.Semaphore", "Client.All", "Client.Election", "Client.Once",
	"Mutex.CallSettings", // see TestCallSettings
}

// A probe is how an option is seen to have an effect.
type probe struct {
	option dibs.Option                             // observed instead, for hooks
	hooks  func(called func()) dibs.Hooks          // or nil
	sees   func(s *scene, run func() error) string // describes the effect
	effect string                                  // its result with the option
}

// whileHeld returns a probe function that calls look while the name is held.
func whileHeld(look func(s *scene, ctx context.Context) string) func(s *scene, run func() error) string {
	return func(s *scene, run func() error) string {
		seen := "not run"
		s.held = func(ctx context.Context) { seen = look(s, ctx) }
		if err := run(); err != nil && !errors.Is(err, dibs.ErrLost) {
			return err.Error()
		}
		return seen
	}
}

func holderOf(s *scene) dibs.Holder {
	state, err := s.other.Inspect(context.Background(), "n")
	if err != nil || len(state.Holders) != 1 {
		return dibs.Holder{Token: dibs.Token(fmt.Sprint(state, err))}
	}
	return state.Holders[0]
}

// failsAfter is a probe function that sees how long a call takes, and why it fails.
func failsAfter(change func(s *scene)) func(s *scene, run func() error) string {
	return func(s *scene, run func() error) string {
		change(s)
		s.held = func(context.Context) {}
		err := run()
		switch took := time.Since(s.began).Round(100 * time.Millisecond); {
		case errors.Is(err, dibs.ErrUnavailable):
			return fmt.Sprint("unavailable after ", took)
		case errors.Is(err, dibs.ErrBusy):
			return fmt.Sprint("busy after ", took)
		default:
			return fmt.Sprint(err)
		}
	}
}

// probes contains a probe for each option.
var probes = map[string]probe{
	"TTL": {option: dibs.TTL(77 * time.Second), effect: "more than 40s: true", sees: whileHeld(func(s *scene, _ context.Context) string {
		time.Sleep(3 * time.Second) // after a hand-off, the first renewal gives the lease its TTL
		return fmt.Sprint("more than 40s: ", holderOf(s).Remaining > 40*time.Second)
	})},
	"Wait":     {option: dibs.Wait(3 * time.Second), effect: "busy after 3s", sees: failsAfter(func(s *scene) { s.busy = true })},
	"Attempts": {option: dibs.Attempts(3, 2*time.Second), effect: "busy after 4s", sees: failsAfter(func(s *scene) { s.busy = true })},
	"Timeout":  {option: dibs.Timeout(3 * time.Second), effect: "unavailable after 3s", sees: failsAfter(func(s *scene) { s.hung = true })},
	"MinHold": {option: dibs.MinHold(50 * time.Second), effect: "reserved true", sees: func(s *scene, run func() error) string {
		s.held = func(context.Context) {}
		if err := run(); err != nil {
			return err.Error()
		}
		time.Sleep(time.Second)
		state, err := s.other.Inspect(context.Background(), "n")
		return fmt.Sprint("reserved ", err == nil && len(state.Holders) == 1 && state.Holders[0].Reserved)
	}},
	"RetryFailed": {option: dibs.RetryFailed(), effect: "reserved false", sees: func(s *scene, run func() error) string {
		s.held, s.fails = func(context.Context) {}, errors.New("failed")
		if err := run(); errors.Is(err, dibs.ErrInvalid) {
			return err.Error()
		}
		state, err := s.other.Inspect(context.Background(), "n")
		return fmt.Sprint("reserved ", err != nil || len(state.Holders) == 1 && state.Holders[0].Reserved)
	}},
	"MaxHold": {option: dibs.MaxHold(5 * time.Second), effect: "lost after 5s", sees: whileHeld(func(s *scene, ctx context.Context) string { return lostAfter(ctx, s) })},
	"NoRenew": {option: dibs.NoRenew(), effect: "lost after 30s", sees: whileHeld(func(s *scene, ctx context.Context) string { return lostAfter(ctx, s) })},
	"Label":   {option: dibs.Label("web"), effect: "web", sees: whileHeld(func(s *scene, _ context.Context) string { return holderOf(s).Label })},
	"Reentrant": {option: dibs.Reentrant(), effect: "entered", sees: func(s *scene, run func() error) string {
		inner := func() error {
			return s.c.All([]string{"m", "n"}).Do(s.ctx, func(ctx context.Context) error {
				s.ctx, s.nested = ctx, true
				return run()
			})
		}
		return whileHeld(func(*scene, context.Context) string { return "entered" })(s, inner)
	}},
	"OwnerToken": {option: dibs.OwnerToken("request-1"), effect: "request-1", sees: whileHeld(func(s *scene, _ context.Context) string { return string(holderOf(s).Token) })},
	"Observe": {
		hooks: func(called func()) dibs.Hooks {
			return dibs.Hooks{Released: func(context.Context, dibs.Released) { called() }}
		},
		effect: "held, called true", sees: whileHeld(func(*scene, context.Context) string { return "held" }),
	},
	"Hooks.Renewed": {
		hooks: func(called func()) dibs.Hooks {
			return dibs.Hooks{Renewed: func(context.Context, dibs.Renewed) { called() }}
		},
		effect: "held, called true", sees: whileHeld(func(*scene, context.Context) string {
			time.Sleep(time.Minute)
			return "held"
		}),
	},
	"Hooks.Degraded": {
		hooks: func(called func()) dibs.Hooks {
			return dibs.Hooks{Degraded: func(context.Context, dibs.Degraded) { called() }}
		},
		effect: "held, called true", sees: func(s *scene, run func() error) string {
			s.store.set(func(f *faulty) { f.watch = func(context.Context) error { return errors.New("no notifications") } })
			return whileHeld(func(*scene, context.Context) string {
				time.Sleep(time.Minute)
				return "held"
			})(s, run)
		},
	},
}

// lostAfter reports when a lease's context ends, or a Locker's lease, which has no context.
func lostAfter(ctx context.Context, s *scene) string {
	begin := time.Now()
	for time.Since(begin) < 45*time.Second {
		if ctx.Err() != nil || len(holdersOf(s)) == 0 {
			return "lost after " + (time.Since(begin) + time.Second).Truncate(5*time.Second).String()
		}
		time.Sleep(time.Second)
	}
	return "held"
}

func holdersOf(s *scene) []dibs.Holder {
	state, _ := s.other.Inspect(context.Background(), "n")
	return state.Holders
}

// observe returns the effect in a way with an option at a level, or without it.
func (p probe) observe(t *testing.T, w way, level string) string {
	store, _ := newFaulty()
	called := false
	option := p.option
	if p.hooks != nil {
		option = dibs.Observe(p.hooks(func() { called = true }))
	}
	options := map[string][]dibs.Option{level: {option}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	s := &scene{c: dibs.New(store, options["client"]...), other: dibs.New(store.Full, dibs.TTL(3*time.Hour)), store: store, ctx: ctx}
	seen := p.sees(s, func() error { return w.run(s, options["lock"], options["call"]) })
	store.heal()
	_, _ = s.c.Close(), s.other.Close()
	synctest.Wait()
	if p.hooks != nil {
		seen += fmt.Sprint(", called ", called)
	}
	return seen
}

// Each option should take effect in each way and at each level where the table in the guide says
// so. At the lock and the call it should be ErrInvalid elsewhere. A client's default, and a lock's
// option with a meaning for other calls, should change nothing.
func TestOptionTable(t *testing.T) {
	for _, name := range dibs.OptionNames() {
		p, ok := probes[name]
		if !ok {
			t.Errorf("%s: no probe sees its effect", name)
			continue
		}
		for wayName, w := range ways {
			ofNew, ofLock, ofCall := dibs.PlacesOf(name, w.places)
			ofElection := strings.HasPrefix(wayName, "Election.") && (name == "Wait" || name == "Attempts")
			var without string
			bubble(t, func(t *testing.T) { without = p.observe(t, w, "none") })
			check := func(level string, allowed, effective bool) {
				t.Run(name+"/"+wayName+"/"+level, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						with := p.observe(t, w, level)
						switch rejected := strings.Contains(with, "dibs: invalid: "+name+" given to "); {
						case rejected == allowed:
							t.Errorf("%q, want rejected: %v", with, !allowed)
						case effective && with != p.effect:
							t.Errorf("%q, want %q", with, p.effect)
						case effective && without == p.effect:
							t.Errorf("%q also without the option", without)
						case allowed && !effective && with != without:
							t.Errorf("%q, want %q, as without the option", with, without)
						}
					})
				})
			}
			if w.places != dibs.NoneYield { // its client level is Do's
				check("client", ofNew, ofNew && (ofCall || strings.HasPrefix(name, "Hooks.")) && !ofElection)
			}
			if w.places != dibs.NoneYield && w.places != dibs.NoneAttach {
				check("lock", ofLock, ofLock && ofCall)
			}
			check("call", ofCall, ofCall)
		}
	}
	if len(probes) != len(dibs.OptionNames()) {
		t.Errorf("%d probes for %d options", len(probes), len(dibs.OptionNames()))
	}
}

// Each function in the package with options is a way in TestOptionTable.
func TestOptionTableIsComplete(t *testing.T) {
	declared := declaredWithOptions(t)
	for _, name := range otherOptions {
		if !declared[name] {
			t.Errorf("%s takes no options", name)
		}
		delete(declared, name)
	}
	for name := range ways {
		if !declared[name] {
			t.Errorf("%s takes no options", name)
		}
		delete(declared, name)
	}
	for name := range declared {
		t.Errorf("%s takes options, and is no way of TestOptionTable", name)
	}
}

// declaredWithOptions returns the exported functions and methods whose last parameter is ...Option.
func declaredWithOptions(t *testing.T) map[string]bool {
	declared := map[string]bool{}
	for _, file := range packageFiles(t) {
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || !takesOptions(fn.Type.Params.List) {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				receiver := fn.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				name = receiver.(*ast.Ident).Name + "." + name
			}
			declared[name] = true
		}
	}
	return declared
}

func takesOptions(parameters []*ast.Field) bool {
	if len(parameters) == 0 {
		return false
	}
	last, ok := parameters[len(parameters)-1].Type.(*ast.Ellipsis)
	if !ok {
		return false
	}
	element, ok := last.Elt.(*ast.Ident)
	return ok && element.Name == "Option"
}
