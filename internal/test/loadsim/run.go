package loadsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dibslock/dibs"
)

// Run executes a plan in virtual time.
func Run(t *testing.T, p Plan) (report Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { report = newRun(t.Context(), p.withDefaults()).do(t) })
	return report
}

// A run is a single execution of a plan.
type run struct {
	ctx    context.Context
	end    context.CancelFunc
	plan   Plan
	server *server
	fleet  []*dibs.Client
	jobs   sync.WaitGroup // for the leases and waiters

	mu     sync.Mutex
	report Report
	held   map[*dibs.Lease]int // the client for each lease its holder considers held
	losses []*dataLoss
	over   bool
}

// A dataLoss is a loss that all lease holders must detect.
type dataLoss struct {
	back       time.Time           // when the server is back
	undetected map[*dibs.Lease]int // the client for each lease whose loss is not yet detected
	detected   []time.Duration     // by client: see Report
}

func newRun(ctx context.Context, p Plan) *run {
	ctx, end := context.WithCancel(ctx)
	return &run{
		ctx: ctx, end: end, plan: p, server: newServer(p),
		report: Report{Leases: p.leases(), Lost: make(map[string]int)}, held: make(map[*dibs.Lease]int),
	}
}

func (r *run) do(t *testing.T) Report {
	stopped := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() { r.server.run(stopped) })
	for i := range r.plan.Leases {
		options := append([]dibs.Option{dibs.TTL(r.plan.TTL), dibs.Timeout(r.plan.Timeout)}, r.plan.Options...)
		r.fleet = append(r.fleet, dibs.New(newLink(r.server, i), options...))
	}
	for i, leases := range r.plan.Leases {
		r.jobs.Go(func() { r.acquireAll(i, leases) })
		for w := range r.plan.Waiters {
			r.jobs.Go(func() { r.await(i, w) })
		}
	}
	for _, e := range r.plan.Events {
		if e.kind == restart {
			r.jobs.Go(func() { r.restart(e) })
		}
	}
	for at := r.plan.Step; at <= r.plan.Duration; at += r.plan.Step {
		time.Sleep(time.Until(r.server.start.Add(at)))
		if !r.sample(at) {
			break
		}
	}
	r.finish(t)
	close(stopped)
	serving.Wait()
	return r.report
}

// finish closes the clients.
func (r *run) finish(t *testing.T) {
	r.mu.Lock()
	r.over = true
	for _, l := range r.losses {
		for _, client := range l.undetected {
			l.detected[client] = time.Since(l.back) // and longer
		}
		r.report.Detected = append(r.report.Detected, l.detected)
	}
	r.mu.Unlock()
	r.server.end()
	r.end()
	r.jobs.Wait()
	var closing sync.WaitGroup
	for i, c := range r.fleet {
		closing.Go(func() {
			if err := c.Close(); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	closing.Wait()
}

// acquireAll acquires a client's leases.
func (r *run) acquireAll(client, leases int) {
	random := rand.New(rand.NewPCG(r.plan.Seed, uint64(client)))
	begin := r.server.start.Add(rand64(random, 100*time.Millisecond))
	for i := range leases {
		at := begin.Add(r.plan.Acquire * time.Duration(i) / time.Duration(leases))
		if !sleep(r.ctx, time.Until(at)) || !r.acquire(client, name(client, i)) {
			return
		}
	}
}

func name(client, i int) string { return fmt.Sprintf("c%d-%d", client, i) }

// acquire acquires a lease, and returns false if the run is over.
func (r *run) acquire(client int, name string) bool {
	for r.ctx.Err() == nil {
		l, err := r.fleet[client].Mutex(name).Lock(r.ctx)
		if err == nil {
			r.hold(client, l)
			return true
		}
		sleep(r.ctx, 50*time.Millisecond)
	}
	return false
}

// hold records a lease, and unlocks it when it is lost.
func (r *run) hold(client int, l *dibs.Lease) {
	r.mu.Lock()
	r.report.Acquired++
	r.held[l] = client
	r.mu.Unlock()
	context.AfterFunc(l.Context(), func() {
		if !r.lost(client, l) {
			return
		}
		if !r.plan.KeepLost {
			_ = l.Unlock() // it returns why the lease was lost
		}
		if r.plan.Again {
			r.acquire(client, l.Name())
		}
	})
}

// lost records a lease's end. It returns false if the run is over.
func (r *run) lost(client int, l *dibs.Lease) bool {
	why := "released"
	var lost *dibs.LostError
	if errors.As(l.Err(), &lost) {
		why = string(lost.Reason)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	delete(r.held, l)
	r.report.Lost[why]++
	for _, loss := range r.losses {
		if _, ok := loss.undetected[l]; ok {
			delete(loss.undetected, l)
			loss.detected[client] = max(loss.detected[client], time.Since(loss.back))
		}
	}
	return true
}

// await waits for another client's leases, as long as the run lasts.
func (r *run) await(client, i int) {
	other := (client + 1) % len(r.plan.Leases)
	if !sleep(r.ctx, r.plan.Acquire+time.Second) {
		return
	}
	for r.ctx.Err() == nil {
		l, err := r.fleet[client].Mutex(name(other, i%max(r.plan.Leases[other], 1))).Lock(r.ctx)
		if err != nil {
			sleep(r.ctx, 50*time.Millisecond)
			continue
		}
		r.mu.Lock()
		r.report.Granted++
		r.mu.Unlock()
		<-r.ctx.Done()
		_ = l.Unlock()
	}
}

// restart restarts the server when it is due.
func (r *run) restart(e Event) {
	if !sleep(r.ctx, e.At) {
		return
	}
	if e.losesData {
		loss := &dataLoss{back: time.Now().Add(e.For), undetected: make(map[*dibs.Lease]int), detected: make([]time.Duration, len(r.plan.Leases))}
		r.mu.Lock()
		for l, client := range r.held {
			loss.undetected[l] = client
		}
		r.losses = append(r.losses, loss)
		r.mu.Unlock()
	}
	r.server.restart(e)
}

// sample records a step. It returns false if all leases are lost, and nothing else will
// happen.
func (r *run) sample(at time.Duration) bool {
	one := r.server.sample()
	r.mu.Lock()
	defer r.mu.Unlock()
	one.At, one.Held, one.Lost = at, len(r.held), r.report.LostInAll()
	r.report.Steps = append(r.report.Steps, one)
	return r.plan.Again || one.Held > 0 || one.Lost < r.report.Leases
}
