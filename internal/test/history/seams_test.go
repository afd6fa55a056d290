package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/internal/test/history"
	"github.com/dibslock/dibs/memstore"
)

// Episodes are short random lives of a lease, at the seams between verbs: calls made together, or
// while replies are lost. Each has its own store, and judges its actions by the store's visible
// state.

// An episode returns contradictions to a rule.
type episode func(*world) error

var episodes = map[string]episode{
	"extensions and an outage":     extendThenOutage,
	"detach beside lost replies":   detachAmongTries,
	"hooks that do not return":     hookEnds,
	"extend a reserved hand-off":   extendHandOff,
	"concurrent changes of weight": resizeAtOnce,
}

// episodesOfSeed is how often an episode is repeated with a seed.
const episodesOfSeed = 10

func TestEpisodes(t *testing.T) {
	for what, run := range episodes {
		t.Run(what, func(t *testing.T) {
			inBubble(t, seeds(5, 100), func(t *testing.T, seed uint64) {
				for i := range uint64(episodesOfSeed) {
					if err := runEpisode(t, memstore.New(), run, seed*episodesOfSeed+i); err != nil {
						t.Errorf("seed %d, episode %d: %v", seed, i, err)
					}
				}
			})
		})
	}
}

func runEpisode(t *testing.T, store driver.Store, run episode, seed uint64) error {
	w := &world{t: t, store: store, seed: seed, random: rand.New(rand.NewPCG(seed, 3))}
	defer w.end()
	return run(w)
}

// A world is an episode's environment: a store, and clients with different networks.
type world struct {
	t       *testing.T
	store   driver.Store
	seed    uint64
	random  *rand.Rand
	clients []*process
}

// A process is a client behind its own network, which can be cut.
type process struct {
	*dibs.Client
	network *network
	link    *cutLink
}

// process returns a new process. Its messages take a millisecond at most.
func (w *world) process(f faults, options ...dibs.Option) *process {
	network := delayed(w.store, w.seed+uint64(len(w.clients)), time.Millisecond, f)
	link := &cutLink{Full: driver.Complete(network)}
	p := &process{dibs.New(link, options...), network, link}
	w.clients = append(w.clients, p)
	return p
}

func (w *world) end() {
	for _, p := range w.clients {
		_ = p.Close() // a disconnected process cannot release
	}
	for _, p := range w.clients {
		p.network.late.Wait()
	}
}

func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(1 + w.random.Int64N(int64(d)))
}

func (w *world) oneOf(all ...time.Duration) time.Duration { return all[w.random.IntN(len(all))] }

// wantFree returns an error if something is left on a name after a while.
func (w *world) wantFree(name string, within time.Duration) error {
	time.Sleep(within)
	state, err := driver.Complete(w.store).Inspect(w.t.Context(), name)
	if err == nil && (state.Holding > 0 || state.Waiting > 0) {
		err = fmt.Errorf("%s: after %v, the store has %d holders %+v and %d waiters", history.Leftover, within, state.Holding, state.Holders, state.Waiting)
	}
	return err
}

// A cutLink is a store that can be cut off. Requests then hang until their time limit.
type cutLink struct {
	*driver.Full
	cut atomic.Bool
}

// pass waits for the end of a request's time if the link is cut, and then returns an error.
func (c *cutLink) pass(ctx context.Context, op string, until time.Time) error {
	if !c.cut.Load() {
		return nil
	}
	if until.IsZero() {
		until = soon()
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	<-ctx.Done()
	return &driver.UnavailableError{Op: op, Cause: context.Cause(ctx)}
}

func (c *cutLink) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	if err := c.pass(ctx, "acquire", r.Until); err != nil {
		return driver.AcquireReply{}, err
	}
	return c.Store.Acquire(ctx, r)
}

func (c *cutLink) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	if err := c.pass(ctx, "cancel", r.Until); err != nil {
		return err
	}
	return c.Store.Cancel(ctx, r)
}

func (c *cutLink) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	if err := c.pass(ctx, "release", r.Until); err != nil {
		return false, err
	}
	return c.Store.Release(ctx, r)
}

func (c *cutLink) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	if err := c.pass(ctx, "extend", time.Time{}); err != nil {
		errs := make([]error, len(requests))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return c.Store.Extend(ctx, requests)
}

func (c *cutLink) Watch(ctx context.Context, client string, busy func() bool, on func(driver.Event)) error {
	return c.Store.Watch(ctx, client, busy, func(e driver.Event) {
		if !c.cut.Load() {
			on(e)
		}
	})
}

// extendThenOutage extends a lease several times, and unlocks it while the store does not
// answer. The name is free soon after the outage, unless the lease ends before.
func extendThenOutage(w *world) error {
	const soonAfter = 3 * time.Second
	p := w.process(faults{})
	lease, err := p.Mutex("n").Lock(w.t.Context(), dibs.TTL(w.oneOf(5*time.Second, 30*time.Second)))
	if err != nil {
		return err
	}
	for range 1 + w.random.IntN(4) {
		if err := lease.Extend(w.t.Context(), w.oneOf(5*time.Second, 30*time.Second, 10*time.Minute, time.Hour)); err != nil {
			return err
		}
		time.Sleep(w.upTo(time.Second))
	}
	p.link.cut.Store(true)
	_ = lease.Unlock() // without an answer
	time.Sleep(w.upTo(30 * time.Second))
	p.link.cut.Store(false)
	return w.wantFree("n", soonAfter)
}

// detachAmongTries hands a lease over after an acquire with possible unanswered tries, which can
// arrive late. After the second owner unlocked it, nothing should be left.
func detachAmongTries(w *world) error {
	const latest = 900 * time.Millisecond
	first := w.process(faults{resets: 400, latest: latest})
	second := w.process(faults{})
	lease, err := first.Mutex("n").Lock(w.t.Context(), dibs.Timeout(2*time.Second))
	if err != nil {
		return nil // all tries were reset
	}
	time.Sleep(w.upTo(50 * time.Millisecond))
	attached, err := second.Attach(w.t.Context(), lease.Handle(), dibs.TTL(time.Minute))
	if err != nil {
		return err
	}
	if w.random.IntN(2) == 0 {
		if err := lease.Extend(w.t.Context(), time.Minute); err != nil && !errors.Is(err, dibs.ErrUnavailable) {
			return err
		}
	}
	if err := lease.Detach(); err != nil && !errors.Is(err, dibs.ErrUnavailable) {
		return err
	}
	time.Sleep(w.upTo(50 * time.Millisecond))
	if err := attached.Unlock(); err != nil {
		return err
	}
	return w.wantFree("n", 10*time.Second)
}

// hookEnds calls a hook that panics or ends its goroutine. The call then holds nothing, and the
// client works.
func hookEnds(w *world) error {
	other := w.process(faults{})
	options, what := w.endingHook()
	p := w.process(faults{}, options)
	if w.random.IntN(2) == 0 { // so the call queues
		lease, err := other.Mutex("n").Lock(w.t.Context())
		if err != nil {
			return err
		}
		time.AfterFunc(w.upTo(time.Second), func() { _ = lease.Unlock() })
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	for range 1 + w.random.IntN(3) {
		number := w.random.IntN(4)
		apart(func() { w.lockOnce(ctx, p.Client, number) })
	}
	if err := w.wantFree("n", 3*time.Second); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	lease, err := other.Mutex("n").TryLock(w.t.Context())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return lease.Unlock()
}

// endingHook returns a hook without a return. In a client's goroutine, such a hook ends the
// goroutine, as a failed test does; a panic there would end the process.
func (w *world) endingHook() (dibs.Option, string) {
	end, how := runtime.Goexit, "Goexit"
	if w.random.IntN(2) == 0 {
		end, how = func() { panic("hook") }, "panic"
	}
	switch w.random.IntN(4) {
	case 0:
		return dibs.Observe(dibs.Hooks{AcquireStart: func(context.Context, dibs.AcquireStart) context.Context { end(); return nil }}), how + " in AcquireStart"
	case 1:
		return dibs.Observe(dibs.Hooks{AcquireEnd: func(context.Context, dibs.AcquireEnd) { end() }}), how + " in AcquireEnd"
	case 2:
		return dibs.Observe(dibs.Hooks{Released: func(context.Context, dibs.Released) { end() }}), how + " in Released"
	default:
		return dibs.Observe(dibs.Hooks{Queued: func(context.Context, dibs.Queued) { runtime.Goexit() }}), "Goexit in Queued"
	}
}

// apart calls f in its own goroutine, which may end or panic.
func apart(f func()) {
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		defer func() { _ = recover() }()
		f()
	}()
	group.Wait()
}

// lockOnce locks and unlocks with a primitive.
func (w *world) lockOnce(ctx context.Context, c *dibs.Client, primitive int) {
	nothing := func(context.Context) error { return nil }
	switch primitive {
	case 0:
		_ = c.Mutex("n").Do(ctx, nothing)
	case 1:
		_ = c.RWMutex("n").Writer().Do(ctx, nothing)
	case 2:
		_ = c.All([]string{"n", "m"}).Do(ctx, nothing)
	default:
		_ = c.Mutex("n").Do(ctx, nothing, dibs.Wait(2*time.Second))
	}
}

// extendHandOff extends a lease from a hand-off with a MinHold. Its process dies a few seconds
// later. The name should stay unavailable until MinHold has passed.
func extendHandOff(w *world) error {
	const latestRenewal = 2 * time.Second // see MinHold
	first, second, third := w.process(faults{}), w.process(faults{}), w.process(faults{})
	before, err := first.Mutex("n").Lock(w.t.Context())
	if err != nil {
		return err
	}
	time.AfterFunc(w.upTo(time.Second), func() { _ = before.Unlock() })
	minHold := w.oneOf(time.Minute, 10*time.Minute)
	lease, err := second.Mutex("n").Lock(w.t.Context(), dibs.TTL(30*time.Second), dibs.MinHold(minHold))
	if err != nil {
		return err
	}
	granted := time.Now()
	for range w.random.IntN(3) {
		if err := lease.Extend(w.t.Context(), w.oneOf(time.Second, 20*time.Second, 2*time.Minute)); err != nil {
			return err
		}
		time.Sleep(w.upTo(500 * time.Millisecond))
	}
	time.Sleep(latestRenewal + w.upTo(4*time.Second))
	second.link.cut.Store(true)
	for {
		lease, err := third.Mutex("n").TryLock(w.t.Context())
		held := time.Since(granted)
		switch {
		case errors.Is(err, dibs.ErrBusy) && held < minHold+5*time.Minute: // it was also extended
			time.Sleep(w.upTo(10 * time.Second))
			continue
		case err != nil:
			return fmt.Errorf("after %v: %w", held, err)
		case held < minHold-time.Second:
			return fmt.Errorf("%s: free %v after the grant, with MinHold(%v)", history.Reserved, held, minHold)
		}
		return lease.Unlock()
	}
}

// resizeAtOnce upgrades and downgrades a lease in several goroutines. Its fence grows, and
// when all have ended, the client and the store agree on who may enter.
func resizeAtOnce(w *world) error {
	p, other := w.process(faults{}), w.process(faults{})
	m := p.RWMutex("n")
	lease, err := m.Reader().Lock(w.t.Context())
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	var last atomic.Uint64
	var decreased atomic.Bool
	for range 2 + w.random.IntN(3) {
		random := rand.New(rand.NewPCG(w.random.Uint64(), 4))
		group.Go(func() {
			for range 3 {
				time.Sleep(time.Duration(random.Int64N(int64(2 * time.Millisecond))))
				change := lease.TryUpgrade
				if random.IntN(2) == 0 {
					change = lease.Downgrade
				}
				before := lease.Fence()
				_ = change(w.t.Context())
				if after := lease.Fence(); after < before {
					decreased.Store(true)
				}
				last.Store(max(last.Load(), lease.Fence()))
			}
		})
	}
	group.Wait()
	if decreased.Load() || lease.Fence() < last.Load() {
		return fmt.Errorf("%s: the fence of a lease decreases", history.Fences)
	}
	nested, err := m.Writer().Lock(lease.Context(), dibs.Reentrant())
	if err == nil {
		if reads, err := other.RWMutex("n").Reader().TryLock(w.t.Context()); err == nil {
			return errors.Join(fmt.Errorf("%s: a reader beside a nested writer", history.Exclusion), reads.Unlock())
		}
		if err := nested.Unlock(); err != nil {
			return err
		}
	}
	if err := lease.Unlock(); err != nil {
		return err
	}
	return w.wantFree("n", time.Second)
}
