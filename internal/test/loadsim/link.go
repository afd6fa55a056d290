package loadsim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dibslock/dibs/driver"
)

const (
	maxExtend = 100 // leases in a request, as in the Redis stores
	maxConns  = 4   // a client's connections with awaited requests, as in the Redis stores

	requestBytes = 250 // for a request
	leaseBytes   = 100 // for each lease in an extension
)

var (
	errReset   = errors.New("connection reset by peer")
	errRefused = errors.New("connection refused")
)

// A link is a client's store: its connections to the server. It is safe for concurrent use.
type link struct {
	*driver.Full // for verbs not used by a lock: free
	server       *server
	client       int

	// Guarded by the server:
	free       time.Duration // when the link is done with all data
	epoch      chan struct{} // the connections' epoch
	idle, busy int           // connections
}

func newLink(s *server, client int) *link {
	return &link{Full: driver.Complete(s.data), server: s, client: client}
}

// A pending is a request whose caller waits.
type pending[T any] struct {
	request *request
	result  chan T
	err     error         // it could not be sent
	owns    bool          // a connection
	latency time.Duration // the reply's latency
}

// post sends a call's requests. They share a connection.
func post[T any](l *link, kind kind, sizes []int, works []time.Duration, execute func(i int) T) []pending[T] {
	s := l.server
	all := make([]pending[T], len(sizes))
	owns, connect, broken, down := l.connect(kind)
	for i := range all {
		p := pending[T]{owns: owns && i == len(all)-1, latency: s.latency()}
		if down {
			p.err = errRefused
			all[i] = p
			continue
		}
		result := make(chan T, 1)
		p.result = result
		p.request = &request{
			kind: kind, leases: sizes[i], work: works[i], broken: broken, link: l,
			execute: func() { result <- execute(i) },
		}
		if i == 0 {
			p.request.work += connect
		}
		all[i] = p
		if wait := l.transmit(sizes[i]); wait > 0 {
			time.AfterFunc(wait, func() { s.arrive(p.request) })
		} else {
			s.arrive(p.request)
		}
	}
	return all
}

// connect returns a connection for a call: an idle connection, a new connection, or a shared
// connection.
func (l *link) connect(kind kind) (owns bool, cost time.Duration, broken chan struct{}, down bool) {
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		if kind != others {
			s.total.Refused++
		}
		return false, 0, nil, true
	}
	if l.epoch != s.broken {
		l.epoch, l.idle, l.busy = s.broken, 0, 0
	}
	switch {
	case l.idle > 0:
		l.idle, l.busy, owns = l.idle-1, l.busy+1, true
	case l.busy < maxConns:
		l.busy, owns, cost = l.busy+1, true, s.plan.Costs.Connect
		s.conns++
		s.total.Connects++
		s.peak.Conns = max(s.peak.Conns, s.conns)
	}
	return owns, cost, s.broken, false
}

// disconnect ends a call's use of a connection. If no reply came in time, the connection is closed,
// which the server notices later.
func (l *link) disconnect(r *request, answered bool) {
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.epoch != r.broken {
		return
	}
	l.busy--
	switch {
	case answered:
		l.idle++
	case r.done:
		s.conns--
	default:
		r.closes = true
	}
}

// transmit returns how long a message needs until it arrives.
func (l *link) transmit(leases int) time.Duration {
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0
	}
	now := s.now()
	arrives := cutUntil(s.plan.Events, l.client, now)
	if s.plan.Bandwidth > 0 {
		bytes := requestBytes + leaseBytes*leases
		l.free = max(l.free, arrives) + time.Duration(bytes)*time.Second/time.Duration(s.plan.Bandwidth)
		arrives = l.free
	}
	return arrives + delayAt(s.plan.Events, now) - now
}

// await waits for the reply.
func (p *pending[T]) await(ctx context.Context, until time.Time) (value T, err error) {
	if p.err != nil {
		_ = sleep(ctx, p.latency)
		return value, p.err
	}
	l := p.request.link
	timeout := make(<-chan time.Time)
	if !until.IsZero() {
		timer := time.NewTimer(max(time.Until(until), 0))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case value = <-p.result:
		now := l.server.now()
		back := time.NewTimer(cutUntil(l.server.plan.Events, l.client, now) - now + p.latency)
		defer back.Stop()
		select {
		case <-back.C:
		case <-p.request.broken:
			err = errReset
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-timeout:
			err = context.DeadlineExceeded
		}
	case <-p.request.broken:
		err = errReset
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timeout:
		err = context.DeadlineExceeded
	}
	if err != nil {
		l.server.leave(p.request)
	}
	if p.owns {
		l.disconnect(p.request, err == nil)
	}
	return value, err
}

// leave records that nobody waits for a request any longer. The server still executes it.
func (s *server) leave(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.left = true
}

// sleep waits, or returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// call sends a request and waits for the reply.
func call[T any](ctx context.Context, l *link, kind kind, op, name string, until time.Time, work time.Duration, execute func() (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	if ctx.Err() != nil {
		return *new(T), &driver.UnavailableError{Op: op, Name: name, Cause: context.Cause(ctx), Unsent: true}
	}
	all := post(l, kind, []int{0}, []time.Duration{work}, func(int) reply {
		value, err := execute()
		return reply{value, err}
	})
	r, err := all[0].await(ctx, until)
	if err != nil {
		return *new(T), &driver.UnavailableError{Op: op, Name: name, Cause: err}
	}
	return r.value, r.err
}

// Acquire implements driver.Store.
func (l *link) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.AcquireReply, error) {
	return call(ctx, l, acquires, "acquire", r.Name, r.Until, l.server.plan.Costs.Call, func() (driver.AcquireReply, error) {
		return l.server.data.Acquire(context.Background(), r)
	})
}

// Cancel implements driver.Store.
func (l *link) Cancel(ctx context.Context, r driver.AcquireRequest) error {
	_, err := call(ctx, l, others, "cancel", r.Name, r.Until, l.server.plan.Costs.Call, func() (struct{}, error) {
		return struct{}{}, l.server.data.Cancel(context.Background(), r)
	})
	return err
}

// Release implements driver.Store.
func (l *link) Release(ctx context.Context, r driver.ReleaseRequest) (bool, error) {
	return call(ctx, l, releases, "release", r.Name, r.Until, l.server.plan.Costs.Call, func() (bool, error) {
		return l.server.data.Release(context.Background(), r)
	})
}

// Extend implements driver.Store. Like the Redis stores, it sends requests with a hundred leases.
func (l *link) Extend(ctx context.Context, requests []driver.ExtendRequest) []error {
	errs := make([]error, len(requests))
	groups := slices.Collect(slices.Chunk(slices.Clone(requests), maxExtend)) // the caller can change them after it left
	sizes, works := make([]int, len(groups)), make([]time.Duration, len(groups))
	for i, group := range groups {
		sizes[i], works[i] = len(group), l.server.plan.Costs.Call+l.server.plan.Costs.Renewed*time.Duration(len(group))
	}
	all := post(l, extends, sizes, works, func(i int) []error { return l.server.data.Extend(context.Background(), groups[i]) })
	until := driver.DeadlineOf(ctx)
	for i, group := range groups {
		results, err := all[i].await(ctx, until)
		for j, r := range group {
			if err != nil {
				errs[i*maxExtend+j] = &driver.UnavailableError{Op: "extend", Name: r.Name, Cause: err}
			} else {
				errs[i*maxExtend+j] = results[j]
			}
		}
	}
	return errs
}

// NotifyWanted implements driver.WantedNotifier.
func (l *link) NotifyWanted(ctx context.Context, r driver.WantedRequest) (bool, error) {
	return call(ctx, l, others, "notify wanted", r.Name, driver.DeadlineOf(ctx), l.server.plan.Costs.Call, func() (bool, error) {
		return l.server.data.NotifyWanted(context.Background(), r)
	})
}
