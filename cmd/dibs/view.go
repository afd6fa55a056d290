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

// withStore opens the store and calls do, with a context that a termination signal
// cancels.
func (a *app) withStore(do func(ctx context.Context, s *opened) error) error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // do has reported all failures that matter
	ctx, stop := a.signalContext()
	err = do(ctx, s)
	if signalled := stop(); signalled != nil {
		return signalled
	}
	return s.explain(err)
}

// inspect reads the state of one name, within a.timeout.
func (a *app) inspect(ctx context.Context, s driver.Store, name string) (dibs.State, error) {
	if err := driver.CheckName(name); err != nil {
		return dibs.State{}, err
	}
	ctx, cancel := a.withTimeout(ctx)
	defer cancel()
	return s.Inspect(ctx, name)
}

// inspectMatching reads the states of all names that match a glob, and of the names in
// others, sorted by name. It leaves out free names and keys that are not locks.
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

// names lists the names that match a glob. A plain name is returned as it is, without a
// scan of the keyspace.
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
	case <-ctx.Done(): // a client library may ignore ctx while it connects
		return nil, &dibs.UnavailableError{Op: "list", Name: glob, Cause: context.Cause(ctx)}
	}
}

// catchPanic calls do. A panic is sent to panics with its stack, so that the main
// goroutine can panic instead: top must restore the terminal before.
func catchPanic(panics chan<- string, do func()) {
	defer func() {
		if p := recover(); p != nil {
			panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	do()
}

// inspectAll reads the states of the names, 32 concurrently, so that they are close in
// time.
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

// stateOf converts a state to the schema of the JSON output.
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
		Fence: h.Fence, Since: sinceOf(h.Fence), Weight: h.Weight, Reserved: h.Reserved,
	}
	if h.Remaining >= 0 {
		ms := h.Remaining.Milliseconds()
		one.TTL = &ms
	}
	return one
}

// token returns the whole token, or its public part.
func (o owner) token(token string, whole bool) string {
	if whole {
		return token
	}
	return o.short
}

// stateWrongType is the state of a name whose key holds a value that is not a lock.
const stateWrongType = "wrong_type"

// The kinds of held names.
const (
	kindMutex   = "mutex"   // one exclusive holder: a mutex, a writer, all permits
	kindShared  = "shared"  // each holder has weight 1: readers, or single permits
	kindPermits = "permits" // one holder has a larger weight, as no reader has
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

// sinceOf returns the time at which a fence was issued: stores derive fences from their
// clock, in µs. A fence is ahead of that time if the clock was once ahead. The result is
// zero if the fence is not a plausible time.
func sinceOf(fence uint64) time.Time {
	const some = uint64(1.6e15) // September 2020; smaller fences are not times
	if fence < some || fence > uint64(time.Now().Add(time.Minute).UnixMicro()) {
		return time.Time{}
	}
	return time.UnixMicro(int64(fence)).UTC().Truncate(time.Millisecond)
}

// String formats the holder for people.
func (h holder) String() string {
	s := owner{host: h.Host, pid: h.PID, label: h.Label, short: h.Token}.String()
	if h.Reserved {
		s += " [reserved]"
	}
	return s
}

func (w waiter) String() string {
	return owner{host: w.Host, pid: w.PID, label: w.Label, short: w.Token}.String()
}

// left returns the time until the lease expires unless it is renewed, or -1 for never.
func (h holder) left() time.Duration {
	if h.TTL == nil {
		return -1
	}
	return time.Duration(*h.TTL) * time.Millisecond
}

// ago returns the time since the lease was acquired, or "" if it is unknown.
func (h holder) ago() string {
	if h.Since.IsZero() {
		return ""
	}
	return brief(max(time.Since(h.Since), 0))
}

// ago returns the same for the first holder.
func (n nameState) ago() string {
	if len(n.Holders) == 0 {
		return ""
	}
	return n.Holders[0].ago()
}

// holderSummary returns the first holder and the number of the others.
func (n nameState) holderSummary() string {
	switch {
	case len(n.Holders) == 0:
		return ""
	case n.Holding == 1:
		return n.Holders[0].String()
	}
	return fmt.Sprintf("%s and %d more", n.Holders[0], n.Holding-1)
}

// left returns the time until the first lease expires, or -1 if none expires.
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

// ttl formats left for people.
func (n nameState) ttl() string {
	if len(n.Holders) == 0 {
		return "-"
	}
	return brief(n.left())
}

// longestWait returns the longest wait of the listed waiters.
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
