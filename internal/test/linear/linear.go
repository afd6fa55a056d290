// Package linear checks that a store is linearizable: the replies of concurrent calls must be
// possible for sequential calls. Each call is executed at a single instant between its start and
// its return. The requests do not queue, and their TTL is too long to expire, so time plays no
// role. This is a store's core, and small enough for a model.
//
// It is a separate module because it depends on porcupine for the search.
package linear

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/dibslock/dibs/driver"
)

// A verb is a request's kind.
type verb int

const (
	acquire verb = iota
	release
	resize
)

// A request is sent to a store, and a reply is its result. For a release it only says whether the
// token held the lock.
type (
	request struct {
		verb    verb
		acquire driver.AcquireRequest
	}
	reply struct {
		held   bool
		fence  uint64
		holder string
	}
)

// A state is a name's state in the model.
type state struct {
	holders []holder // sorted by token
	fence   uint64   // largest so far
}

type holder struct {
	token     string
	weight    int
	exclusive bool
	fence     uint64
}

// exact is a name's specification: a weighted semaphore. lenient also allows refusals of requests that
// fit.
var exact, lenient = newModel(step), newModel(stepOrRefuse)

func newModel(step func(s state, q request, r reply) (bool, state)) porcupine.Model {
	return porcupine.Model{
		Partition: byName,
		Init:      func() any { return state{} },
		Step: func(s, q, r any) (bool, any) {
			return step(s.(state), q.(request), r.(reply))
		},
		Equal: func(a, b any) bool {
			x, y := a.(state), b.(state)
			return x.fence == y.fence && slices.Equal(x.holders, y.holders)
		},
		DescribeOperation: func(q, r any) string { return describe(q.(request), r.(reply)) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}

// byName partitions a history: names are independent.
func byName(all []porcupine.Operation) (parts [][]porcupine.Operation) {
	index := make(map[string]int)
	for _, op := range all {
		name := op.Input.(request).acquire.Name
		i, ok := index[name]
		if !ok {
			i = len(parts)
			index[name], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// stepOrRefuse is step, but a refusal that names another holder is always possible, unless the token
// holds the name and acquires it again.
func stepOrRefuse(s state, q request, r reply) (bool, state) {
	_, holds := s.holder(q.acquire.Token)
	if q.verb != release && (q.verb != acquire || !holds) && r.holder != q.acquire.Token && s.isRefusal(r) {
		return true, s
	}
	return step(s, q, r)
}

// step reports whether the model allows the reply, and returns its next state.
func step(s state, q request, r reply) (bool, state) {
	c := q.acquire
	own, holds := s.holder(c.Token)
	switch q.verb {
	case release:
		return r.held == holds, s.without(c.Token)
	case acquire:
		switch {
		case holds: // a repeated acquire returns Held and keeps the weight
			return r.held && r.fence >= own.fence, s.with(holder{c.Token, own.weight, own.exclusive, r.fence})
		case s.fits(c):
			return r.held && r.fence > s.fence, s.with(holder{c.Token, c.Weight, c.Exclusive(), r.fence})
		}
		return s.isRefusal(r), s
	}
	others := s.without(c.Token)
	switch {
	case !holds:
		return !r.held, s
	case others.fits(c):
		larger := r.fence > s.fence || !c.Exclusive() && r.fence >= own.fence
		return r.held && larger, s.with(holder{c.Token, c.Weight, c.Exclusive(), r.fence})
	}
	return others.isRefusal(r), s
}

// fits reports whether there is room for a request.
func (s state) fits(r driver.AcquireRequest) bool {
	used := 0
	for _, h := range s.holders {
		if h.exclusive {
			return false
		}
		used += h.weight
	}
	return used <= r.Limit-r.Weight
}

// isRefusal reports whether a reply is a correct refusal: it names a holder.
func (s state) isRefusal(r reply) bool {
	_, holds := s.holder(r.holder)
	return !r.held && holds
}

func (s state) holder(token string) (holder, bool) {
	i, found := s.find(token)
	if !found {
		return holder{}, false
	}
	return s.holders[i], true
}

func (s state) find(token string) (int, bool) {
	return slices.BinarySearchFunc(s.holders, token, func(h holder, token string) int { return cmp.Compare(h.token, token) })
}

// with returns the state with a holder added or replaced.
func (s state) with(h holder) state {
	s = s.without(h.token)
	i, _ := s.find(h.token)
	return state{slices.Insert(s.holders, i, h), max(s.fence, h.fence)}
}

// without returns the state without a holder. States share no memory.
func (s state) without(token string) state {
	holders := slices.DeleteFunc(slices.Clone(s.holders), func(h holder) bool { return h.token == token })
	return state{holders, s.fence}
}

func describe(q request, r reply) string {
	c := q.acquire
	switch q.verb {
	case release:
		return fmt.Sprintf("release %s: %v", c.Token, r.held)
	case acquire:
		return fmt.Sprintf("acquire %s %d/%d: %+v", c.Token, c.Weight, c.Limit, r)
	}
	return fmt.Sprintf("resize %s %d/%d: %+v", c.Token, c.Weight, c.Limit, r)
}

// Record sends random requests to a store from many goroutines at once, and returns the history.
// The seed determines each goroutine's requests. The names begin with prefix, and no other process
// may use them. An error fails the test.
func Record(t testing.TB, store driver.Store, prefix string, seed uint64, requests int) []porcupine.Operation {
	t.Helper()
	const workers = 8
	var (
		clock atomic.Int64 // counts calls and returns
		group sync.WaitGroup
		parts [workers][]porcupine.Operation
	)
	for i := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for range requests / workers {
				q := randomRequest(random, prefix)
				op := porcupine.Operation{ClientId: i, Input: q, Call: clock.Add(1)}
				runtime.Gosched() // let other goroutines call
				r, err := send(t.Context(), store, q)
				if err != nil {
					t.Errorf("seed %d: %s: %v", seed, describe(q, r), err)
					return
				}
				runtime.Gosched()
				op.Output, op.Return = r, clock.Add(1)
				parts[i] = append(parts[i], op)
			}
		})
	}
	group.Wait()
	return slices.Concat(parts[:]...)
}

// randomRequest returns a random request. It uses few tokens and names, so requests conflict.
func randomRequest(r *rand.Rand, prefix string) request {
	const names, tokens = 3, 6
	q := request{verb: verb(r.IntN(3))}
	token := r.IntN(tokens)
	q.acquire = driver.AcquireRequest{
		Name:   fmt.Sprintf("%slinear-%d", prefix, r.IntN(names)),
		Token:  fmt.Sprintf("host:1:client:%d", token),
		Client: "host:1:client",
		Seq:    uint64(token + 1),
		TTL:    time.Hour,
	}
	q.acquire.Weight, q.acquire.Limit = randomWeight(r)
	return q
}

// randomWeight returns the weight and limit for a mutex, a reader, a writer or some permits.
func randomWeight(r *rand.Rand) (weight, limit int) {
	const permits = 4
	switch r.IntN(6) {
	case 0:
		return 1, 1
	case 1:
		return driver.Unlimited, driver.Unlimited
	case 2:
		return 1, driver.Unlimited
	}
	return 1 + r.IntN(permits), permits
}

func send(ctx context.Context, store driver.Store, q request) (reply, error) {
	until := time.Now().Add(10 * time.Second)
	r := q.acquire
	r.Until = until
	switch q.verb {
	case release:
		held, err := store.Release(ctx, driver.ReleaseRequest{Name: r.Name, Token: r.Token, Until: until})
		return reply{held: held}, err
	case acquire:
		a, err := store.Acquire(ctx, r)
		return reply{a.Held, a.Fence, a.Holder}, err
	}
	a, err := driver.Complete(store).Resize(ctx, r)
	return reply{a.Held, a.Fence, a.Holder}, err
}

// Linearizable reports whether a history is possible for sequential calls.
func Linearizable(t testing.TB, history []porcupine.Operation) bool {
	t.Helper()
	ok, _ := check(t, exact, history)
	return ok
}

// Check fails the test if a history is not linearizable, and writes a visualization to
// the test's artifacts.
func Check(t testing.TB, history []porcupine.Operation) {
	t.Helper()
	checkModel(t, exact, history)
}

// CheckLenient is Check for a store that can refuse a request although it fits, while another request
// is under way. The refusal must name a holder.
func CheckLenient(t testing.TB, history []porcupine.Operation) {
	t.Helper()
	checkModel(t, lenient, history)
}

func checkModel(t testing.TB, model porcupine.Model, history []porcupine.Operation) {
	t.Helper()
	ok, info := check(t, model, history)
	if ok {
		return
	}
	t.Errorf("no sequential order of the requests explains the %d replies", len(history))
	path := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		t.Errorf("visualize: %v", err)
		return
	}
	t.Logf("visualization of the history: %s (kept with -artifacts)", path)
}

func check(t testing.TB, model porcupine.Model, history []porcupine.Operation) (bool, porcupine.LinearizationInfo) {
	t.Helper()
	const timeout = time.Minute
	result, info := porcupine.CheckOperationsVerbose(model, history, timeout)
	if result == porcupine.Unknown {
		t.Fatalf("undecided after %v", timeout)
	}
	return result == porcupine.Ok, info
}
