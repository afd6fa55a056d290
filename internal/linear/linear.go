// Package linear checks that a store is linearizable: that what concurrent calls were
// answered could have been answered one after another, each at one instant between its
// call and its return. The claims do not queue, and live too long to expire, so that
// time plays no part; what is left is the heart of a store, and small enough to be
// written down as a model.
//
// It is a module of its own for the sake of porcupine, which does the search.
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

// A verb is what is asked of the store.
type verb int

const (
	acquire verb = iota
	release
	reweigh
)

// A question is what a store was asked, and a reply what it answered: of a release,
// only whether the token held.
type (
	question struct {
		verb  verb
		claim driver.AcquireRequest
	}
	reply struct {
		held   bool
		fence  uint64
		holder string
	}
)

// A state is all that the model knows of a name.
type state struct {
	holders []holder // by token
	fence   uint64   // the largest so far
}

type holder struct {
	token  string
	weight int
	alone  bool
	fence  uint64
}

// model is the specification of a name: a weighted semaphore.
var model = porcupine.Model{
	Partition: byName,
	Init:      func() any { return state{} },
	Step: func(s, q, r any) (bool, any) {
		return step(s.(state), q.(question), r.(reply))
	},
	Equal: func(a, b any) bool {
		x, y := a.(state), b.(state)
		return x.fence == y.fence && slices.Equal(x.holders, y.holders)
	},
	DescribeOperation: func(q, r any) string { return describe(q.(question), r.(reply)) },
	DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
}

// byName parts a history: names have nothing to do with each other.
func byName(all []porcupine.Operation) (parts [][]porcupine.Operation) {
	index := make(map[string]int)
	for _, op := range all {
		name := op.Input.(question).claim.Name
		i, ok := index[name]
		if !ok {
			i = len(parts)
			index[name], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// step reports whether the model could have answered so, and its state afterwards.
func step(s state, q question, r reply) (bool, state) {
	c := q.claim
	own, holds := s.holder(c.Token)
	switch q.verb {
	case release:
		return r.held == holds, s.without(c.Token)
	case acquire:
		switch {
		case holds: // a token that holds is told so again, and holds what it did
			return r.held && r.fence >= own.fence, s.with(holder{c.Token, own.weight, own.alone, r.fence})
		case s.fits(c):
			return r.held && r.fence > s.fence, s.with(holder{c.Token, c.Weight, c.Exclusive(), r.fence})
		}
		return s.refuses(r), s
	}
	others := s.without(c.Token)
	switch {
	case !holds:
		return !r.held, s
	case others.fits(c):
		larger := r.fence > s.fence || !c.Exclusive() && r.fence >= own.fence
		return r.held && larger, s.with(holder{c.Token, c.Weight, c.Exclusive(), r.fence})
	}
	return others.refuses(r), s
}

// fits reports whether there is room for a claim.
func (s state) fits(c driver.AcquireRequest) bool {
	used := 0
	for _, h := range s.holders {
		if h.alone {
			return false
		}
		used += h.weight
	}
	return used <= c.Limit-c.Weight
}

// refuses reports whether a reply is a right way to say that there is no room: it
// names somebody who holds.
func (s state) refuses(r reply) bool {
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

// with returns the state with one more holder, or with a holder changed.
func (s state) with(h holder) state {
	s = s.without(h.token)
	i, _ := s.find(h.token)
	return state{slices.Insert(s.holders, i, h), max(s.fence, h.fence)}
}

// without returns the state without a holder. The states share nothing.
func (s state) without(token string) state {
	holders := slices.DeleteFunc(slices.Clone(s.holders), func(h holder) bool { return h.token == token })
	return state{holders, s.fence}
}

func describe(q question, r reply) string {
	c := q.claim
	switch q.verb {
	case release:
		return fmt.Sprintf("release %s: %v", c.Token, r.held)
	case acquire:
		return fmt.Sprintf("acquire %s %d/%d: %+v", c.Token, c.Weight, c.Limit, r)
	}
	return fmt.Sprintf("reweigh %s %d/%d: %+v", c.Token, c.Weight, c.Limit, r)
}

// Record asks a store so many random questions from many goroutines at once, and
// returns what was answered. The seed decides what each goroutine asks. The names,
// which begin with the prefix, must be nobody else's. Nothing may fail.
func Record(t testing.TB, store driver.Store, prefix string, seed uint64, questions int) []porcupine.Operation {
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
			for range questions / workers {
				q := draw(random, prefix)
				op := porcupine.Operation{ClientId: i, Input: q, Call: clock.Add(1)}
				runtime.Gosched() // let others call
				r, err := ask(t.Context(), store, q)
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

// draw returns a random question: few tokens ask for few names, so that they meet.
func draw(r *rand.Rand, prefix string) question {
	const names, tokens = 3, 6
	q := question{verb: verb(r.IntN(3))}
	token := r.IntN(tokens)
	q.claim = driver.AcquireRequest{
		Name:   fmt.Sprintf("%slinear-%d", prefix, r.IntN(names)),
		Token:  fmt.Sprintf("host:1:client:%d", token),
		Client: "host:1:client",
		Seq:    uint64(token + 1),
		TTL:    time.Hour,
	}
	q.claim.Weight, q.claim.Limit = share(r)
	return q
}

// share is what a mutex, a reader, a writer or a user of permits takes.
func share(r *rand.Rand) (weight, limit int) {
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

func ask(ctx context.Context, store driver.Store, q question) (reply, error) {
	until := time.Now().Add(10 * time.Second)
	c := q.claim
	c.Until = until
	switch q.verb {
	case release:
		held, err := store.Release(ctx, driver.ReleaseRequest{Name: c.Name, Token: c.Token, Until: until})
		return reply{held: held}, err
	case acquire:
		a, err := store.Acquire(ctx, c)
		return reply{a.Held, a.Fence, a.Holder}, err
	}
	a, err := store.Resize(ctx, c)
	return reply{a.Held, a.Fence, a.Holder}, err
}

// Linearizable reports whether a history could have come from one call after another.
func Linearizable(t testing.TB, history []porcupine.Operation) bool {
	t.Helper()
	ok, _ := check(t, history)
	return ok
}

// Check fails the test if a history is not linearizable, and leaves a picture of it in
// the test's artifacts.
func Check(t testing.TB, history []porcupine.Operation) {
	t.Helper()
	ok, info := check(t, history)
	if ok {
		return
	}
	t.Errorf("%d answers fit no order of the questions", len(history))
	path := filepath.Join(t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		t.Errorf("no picture: %v", err)
		return
	}
	t.Logf("a picture of the history is in %s, and kept with -artifacts", path)
}

func check(t testing.TB, history []porcupine.Operation) (bool, porcupine.LinearizationInfo) {
	t.Helper()
	const patience = time.Minute
	result, info := porcupine.CheckOperationsVerbose(model, history, patience)
	if result == porcupine.Unknown {
		t.Fatalf("not decided within %v", patience)
	}
	return result == porcupine.Ok, info
}
