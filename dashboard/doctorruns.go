package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dibslock/dibs/checkup"
)

const (
	doctorEvery = time.Minute
	scrapeEvery = 10 * time.Minute // while only metrics are read
	doctorTime  = 30 * time.Second // limit for each check
)

// doctorRuns call a doctor once a minute, while somebody wants its findings. For metrics, which are
// read all the time, they do so less often.
type doctorRuns struct {
	doctor func(context.Context) (checkup.Findings, error) // nil: there is none

	mu      sync.Mutex
	began   time.Time
	last    *report
	running chan struct{} // closed when the current check ends; nil: none
}

// A report is a check's result.
type report struct {
	at       time.Time
	findings checkup.Findings
	err      error // why there are no findings
}

// latest returns the last report, or nil before the first report. If a check is due, latest starts
// it and does not wait for its end.
func (c *doctorRuns) latest() *report { return c.within(doctorEvery) }

// within is like latest, but a check is due after another pause.
func (c *doctorRuns) within(pause time.Duration) *report {
	if c.doctor == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil && (c.began.IsZero() || time.Since(c.began) >= pause) {
		c.began, c.running = time.Now(), make(chan struct{})
		go c.check(c.running)
	}
	return c.last
}

// wait is like latest, but waits for the first report, until ctx ends.
func (c *doctorRuns) wait(ctx context.Context) *report {
	if r := c.latest(); r != nil || c.doctor == nil {
		return r
	}
	c.mu.Lock()
	running := c.running
	c.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	return c.latest()
}

func (c *doctorRuns) check(done chan<- struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
	defer cancel()
	r := &report{}
	r.findings, r.err = c.call(ctx)
	r.at = time.Now()
	c.mu.Lock()
	c.last, c.running = r, nil
	c.mu.Unlock()
	close(done)
}

// call calls the doctor. In this goroutine a panic would end the program.
func (c *doctorRuns) call(ctx context.Context) (f checkup.Findings, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, fmt.Errorf("the doctor panicked: %v", p)
		}
	}()
	return c.doctor(ctx)
}
