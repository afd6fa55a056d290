package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver"
	"github.com/dibslock/dibs/examples/internal/exstore"
)

// A teamSet contains the demo's teams and the data that they share.
type teamSet struct {
	data      sharedData
	teams     []team
	storeName string // for output
	summary   string
	stop      func() error
}

// A team runs jobs: in goroutines in this process, or in another process.
type team interface {
	do(ctx context.Context, j job) (report, error)
	close() error
}

// A job is a team's work in a scene.
type job struct {
	Task    string
	Locked  bool
	Workers int
	Times   int           // for each worker
	For     time.Duration // for all
}

// A report is a job's result.
type report struct {
	Count  int64
	Turns  []turnTimes
	Events []event
	Error  string // only in reports from another process
}

// startTeams starts n teams on the store at a URL.
func startTeams(ctx context.Context, url string, n int) (*teamSet, error) {
	if url == "" {
		return startLocalTeams(n), nil
	}
	s, err := openServer(ctx, url, newPrefix())
	if err != nil {
		return nil, err
	}
	c := &teamSet{data: s, storeName: s.name, summary: fmt.Sprintf("%d processes", n)}
	c.stop = func() error {
		err := c.closeTeams()
		if ctx.Err() != nil {
			err = nil // Ctrl-C may have ended a process before it could ignore the signal
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(err, s.clean(ctx), s.rdb.Close())
	}
	for range n {
		p, err := startProcess(url, s.prefix)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.teams = append(c.teams, p)
	}
	if _, err := c.runAll(ctx, job{Task: "connect"}); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// startLocalTeams starts n teams in this process.
func startLocalTeams(n int) *teamSet {
	m := newMemoryData()
	c := &teamSet{data: m, storeName: exstore.Memory, summary: fmt.Sprintf("%d clients in one process", n)}
	c.stop = c.closeTeams
	for range n {
		c.teams = append(c.teams, newLocal(m))
	}
	return c
}

func (c *teamSet) closeTeams() error {
	errs := make([]error, len(c.teams))
	var group sync.WaitGroup
	for i, t := range c.teams {
		group.Go(func() { errs[i] = t.close() })
	}
	group.Wait()
	return errors.Join(errs...)
}

// runAll runs the same job in all teams concurrently.
func (c *teamSet) runAll(ctx context.Context, j job) ([]report, error) {
	reports := make([]report, len(c.teams))
	err := concurrently(ctx, len(c.teams), func(ctx context.Context, i int) (err error) {
		reports[i], err = c.teams[i].do(ctx, j)
		return err
	})
	return reports, err
}

// runAllTimed does the same and returns the time taken.
func (c *teamSet) runAllTimed(ctx context.Context, j job) ([]report, time.Duration, error) {
	begin := time.Now()
	reports, err := c.runAll(ctx, j)
	return reports, time.Since(begin), err
}

// concurrently calls do n times concurrently. The first failure cancels the others and is
// returned.
func concurrently(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// A local is a team with goroutines and a single client.
type local struct {
	data  sharedData
	locks *dibs.Client
}

func newLocal(s sharedData) *local { return &local{data: s, locks: newClient(s.locks())} }

// newClient returns a client with a long timeout, so that the demo works on a busy machine. A
// service would rather fail earlier.
func newClient(s driver.Store, options ...dibs.Option) *dibs.Client {
	return dibs.New(s, append(options, dibs.Timeout(5*time.Second))...)
}

func (l *local) close() error { return l.locks.Close() }

// tasks contains the teams' tasks by name.
var tasks = map[string]func(ctx context.Context, l *local, j job) (report, error){
	"connect": connect,
	"deposit": deposit,
	"buy":     buy,
	"queue":   queue,
	"hold":    hold,
	"follow":  follow,
}

func (l *local) do(ctx context.Context, j job) (report, error) {
	part := tasks[j.Task]
	if part == nil {
		return report{}, fmt.Errorf("unknown task %q", j.Task)
	}
	return part(ctx, l, j)
}

// connect opens a team's connections.
func connect(ctx context.Context, l *local, _ job) (report, error) {
	_, err := l.locks.Inspect(ctx, "deposits")
	return report{}, err
}

// lock returns a job's lock: a mutex, or noLock.
func (l *local) lock(j job, name string) dibs.Doer {
	if !j.Locked {
		return noLock{}
	}
	return l.locks.Mutex(name)
}

// noLock runs functions without a lock.
type noLock struct{}

// Do implements dibs.Doer.
func (noLock) Do(ctx context.Context, fn func(ctx context.Context) error, _ ...dibs.Option) error {
	return fn(ctx)
}
