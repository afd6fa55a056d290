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

// A teamSet is the teams that play, and the site on which they do.
type teamSet struct {
	data      sharedData
	teams     []team
	storeName string // for people
	summary   string
	stop      func() error
}

// A team does its part of a scene: as goroutines of this process, or as another
// process.
type team interface {
	do(ctx context.Context, j job) (report, error)
	close() error
}

// A job is a team's part of a scene.
type job struct {
	Part    string
	Locked  bool
	Workers int
	Times   int           // for each worker
	For     time.Duration // for all
}

// A report is what a team has to tell afterwards.
type report struct {
	Count  int64
	Turns  []turn
	Events []event
	Error  string // only on its way from another process
}

// startTeams returns a cast of n teams on the site of a URL.
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
			err = nil // Ctrl-C may have met them before they could leave it to us
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
	if _, err := c.all(ctx, job{Part: "arrive"}); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// startLocalTeams returns a cast in this process.
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

// all gives every team the same job.
func (c *teamSet) all(ctx context.Context, j job) ([]report, error) {
	reports := make([]report, len(c.teams))
	err := concurrently(ctx, len(c.teams), func(ctx context.Context, i int) (err error) {
		reports[i], err = c.teams[i].do(ctx, j)
		return err
	})
	return reports, err
}

// timed is all, and how long it took.
func (c *teamSet) timed(ctx context.Context, j job) ([]report, time.Duration, error) {
	begin := time.Now()
	reports, err := c.all(ctx, j)
	return reports, time.Since(begin), err
}

// concurrently does n things side by side. The first failure ends the others, and is
// what it returns.
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

// A local is a team of goroutines with one client.
type local struct {
	data  sharedData
	locks *dibs.Client
}

func newLocal(s sharedData) *local { return &local{data: s, locks: newClient(s.locks())} }

// newClient returns a client that has the patience of a play: a service would
// rather fail than wait for so long on a machine that is overloaded.
func newClient(s driver.Store, options ...dibs.Option) *dibs.Client {
	return dibs.New(s, append(options, dibs.Timeout(5*time.Second))...)
}

func (l *local) close() error { return l.locks.Close() }

// parts are what a team can be told to do.
var parts = map[string]func(ctx context.Context, l *local, j job) (report, error){
	"arrive":  connect,
	"deposit": deposit,
	"buy":     buy,
	"queue":   queue,
	"hold":    hold,
	"follow":  follow,
}

func (l *local) do(ctx context.Context, j job) (report, error) {
	part := parts[j.Part]
	if part == nil {
		return report{}, fmt.Errorf("no part %q in this play", j.Part)
	}
	return part(ctx, l, j)
}

// connect shows that a team is there, with its connections.
func connect(ctx context.Context, l *local, _ job) (report, error) {
	_, err := l.locks.Inspect(ctx, "deposits")
	return report{}, err
}

// lock returns the lock of a job: a name, or none at all.
func (l *local) lock(j job, name string) dibs.Doer {
	if !j.Locked {
		return noLock{}
	}
	return l.locks.Mutex(name)
}

// noLock is what a program has that takes no lock.
type noLock struct{}

// Do implements dibs.Doer.
func (noLock) Do(ctx context.Context, fn func(ctx context.Context) error, _ ...dibs.Option) error {
	return fn(ctx)
}
