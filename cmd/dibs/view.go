package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
)

// withStore opens the store for what a verb does, until it is done or a signal ends it.
func (a *app) withStore(do func(ctx context.Context, s *opened) error) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // nothing can be lost by it
	ctx, stop := a.signalContext()
	err = do(ctx, s)
	if signalled := stop(); signalled != nil {
		return signalled
	}
	return s.explain(err)
}

// inspect looks at one name.
func (a *app) inspect(ctx context.Context, s driver.Store, name string) (dibs.State, error) {
	if err := driver.CheckName(name); err != nil {
		return dibs.State{}, err
	}
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	return s.Inspect(ctx, name)
}

// survey looks at all names that match a glob, and at some others, in the order of the
// names. What is free, or not a lock, is left out.
func (a *app) inspectMatching(ctx context.Context, s driver.Store, glob string, others ...string) ([]dibs.State, error) {
	names, err := a.names(ctx, s, glob)
	if err != nil {
		return nil, err
	}
	names = append(names, others...)
	slices.Sort(names)
	states, err := a.inspectAll(ctx, s, slices.Compact(names))
	return slices.DeleteFunc(states, func(s dibs.State) bool { return len(s.Holders) == 0 && s.Waiting == 0 }), err
}

// names lists what matches a glob. A name that is none is not looked for among all others.
func (a *app) names(ctx context.Context, s driver.Store, glob string) ([]string, error) {
	if !strings.ContainsAny(glob, `*?[\`) {
		return []string{glob}, driver.CheckName(glob)
	}
	type listing struct {
		names []string
		err   error
	}
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	done, panics := make(chan listing, 1), make(chan string, 1)
	go catchPanic(panics, func() {
		names, err := s.List(ctx, glob)
		done <- listing{names, err}
	})
	select {
	case l := <-done:
		return l.names, l.err
	case stack := <-panics:
		panic(stack)
	case <-ctx.Done(): // a client library may go on waiting for its connection
		return nil, &dibs.UnavailableError{Op: "list", Name: glob, Cause: context.Cause(ctx)}
	}
}

// guarded lets a panic be carried to where it can be seen: top has to restore the terminal.
func catchPanic(panics chan<- string, do func()) {
	defer func() {
		if p := recover(); p != nil {
			panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	do()
}

// inspectAll looks at several names at a time, so that what it sees is nearly of one moment.
func (a *app) inspectAll(ctx context.Context, s driver.Store, names []string) ([]dibs.State, error) {
	const atOnce = 32
	states, errs := make([]dibs.State, len(names)), make([]error, len(names))
	free, panics := make(chan struct{}, atOnce), make(chan string, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			catchPanic(panics, func() { states[i], errs[i] = a.inspect(ctx, s, name) })
		})
	}
	all.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, dibs.ErrWrongType) {
			return nil, err
		}
	}
	return states, nil
}

// stateOf is a name's state in the words of the schema.
func stateOf(s dibs.State, wholeTokens bool) nameState {
	n := nameState{
		Schema: schema, Name: s.Name, State: "free", Kind: kindOf(s.Holders), wholeTokens: wholeTokens,
		Holders: make([]holder, 0, len(s.Holders)), Holding: s.Holding,
		Waiters: make([]waiter, 0, len(s.Waiters)), Waiting: s.Waiting,
	}
	for _, h := range s.Holders {
		n.State = "held"
		n.Holders = append(n.Holders, holderOf(h, wholeTokens))
	}
	if n.Kind == kindMutex {
		n.Fence = s.Holders[0].Fence
	}
	for i, w := range s.Waiters {
		o := ownerOf(w.Token)
		n.Waiters = append(n.Waiters, waiter{
			Token: o.token(w.Token, wholeTokens), Host: o.host, PID: o.pid, Label: o.label,
			Position: i + 1, Waited: w.Waited.Milliseconds(),
		})
	}
	return n
}

func holderOf(h dibs.Holder, wholeToken bool) holder {
	o := ownerOf(h.Token)
	one := holder{
		Token: o.token(h.Token, wholeToken), Host: o.host, PID: o.pid, Label: o.label,
		Fence: h.Fence, Since: sinceOf(h.Fence), Weight: h.Weight, Reserved: strings.HasSuffix(h.Token, driver.ReservedSuffix),
	}
	if h.Remaining >= 0 {
		ms := h.Remaining.Milliseconds()
		one.TTL = &ms
	}
	return one
}

// token is the whole token, or what anybody may know of it.
func (o owner) token(token string, whole bool) string {
	if whole {
		return token
	}
	return o.short
}

// The kinds of what is held.
const (
	kindMutex   = "mutex"   // one holds alone: a mutex, a writer, all permits
	kindShared  = "shared"  // each holds one part: readers, or single permits
	kindPermits = "permits" // one of them holds several parts, as no reader does
)

func kindOf(holders []dibs.Holder) string {
	if len(holders) == 0 {
		return ""
	}
	most := slices.MaxFunc(holders, func(a, b dibs.Holder) int { return cmp.Compare(a.Weight, b.Weight) })
	switch most.Weight {
	case 0:
		return kindMutex
	case 1:
		return kindShared
	}
	return kindPermits
}

// sinceOf reads from a fence when its holding began: stores take it from their clock, in
// µs. It may have been raised above that, by as much as the clock was once ahead.
func sinceOf(fence uint64) time.Time {
	const some = uint64(1.6e15) // September 2020: what is below is no time
	if fence < some || fence > uint64(time.Now().Add(time.Minute).UnixMicro()) {
		return time.Time{}
	}
	return time.UnixMicro(int64(fence)).UTC().Truncate(time.Millisecond)
}

// String is for people.
func (h holder) String() string {
	s := owner{host: h.Host, pid: h.PID, label: h.Label, short: h.Token}.String()
	if h.Reserved {
		s += " [kept]"
	}
	return s
}

func (w waiter) String() string {
	return owner{host: w.Host, pid: w.PID, label: w.Label, short: w.Token}.String()
}

// left is when a holding ends if nobody renews it.
func (h holder) left() time.Duration {
	if h.TTL == nil {
		return -1
	}
	return time.Duration(*h.TTL) * time.Millisecond
}

// ago is for how long it has been held, as far as known.
func (h holder) ago() string {
	if h.Since.IsZero() {
		return ""
	}
	return brief(max(time.Since(h.Since), 0))
}

// ago is the same of the first who holds.
func (n nameState) ago() string {
	if len(n.Holders) == 0 {
		return ""
	}
	return n.Holders[0].ago()
}

// who names those who hold: the first, and how many there are besides.
func (n nameState) holderSummary() string {
	switch {
	case len(n.Holders) == 0:
		return ""
	case n.Holding == 1:
		return n.Holders[0].String()
	}
	return fmt.Sprintf("%s and %d more", n.Holders[0], n.Holding-1)
}

// left is when the first holding ends, and -1 if none ever does.
func (n nameState) left() time.Duration {
	if len(n.Holders) == 0 {
		return 0
	}
	first := n.Holders[0].left()
	for _, h := range n.Holders {
		if d := h.left(); d >= 0 && (first < 0 || d < first) {
			first = d
		}
	}
	return first
}

// ttl is the same for people.
func (n nameState) ttl() string {
	if len(n.Holders) == 0 {
		return "-"
	}
	return brief(n.left())
}

// longest is how long somebody has waited, of those who are known.
func (n nameState) longestWait() (d time.Duration) {
	for _, w := range n.Waiters {
		d = max(d, time.Duration(w.Waited)*time.Millisecond)
	}
	return d
}

func statesOf(states []dibs.State) []nameState {
	out := make([]nameState, len(states))
	for i, s := range states {
		out[i] = stateOf(s, false)
	}
	return out
}
