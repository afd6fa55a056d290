// Package duetest counts how the schedulers in several processes handle due times. A mode's jobs
// are due at the same times. The modes' due times are spread over the interval, so all modes run at
// once.
package duetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dibslock/dibs"
)

// A Plan says when jobs are due. All processes have the same plan.
type Plan struct {
	First    time.Time // for the jobs in the first mode
	Interval time.Duration
	Modes    int
	Jobs     int // in each mode
	Ticks    int // due times for each job
}

// FirstOf returns the first due time for a mode's jobs.
func (p Plan) FirstOf(mode int) time.Time {
	return p.First.Add(p.Interval * time.Duration(mode) / time.Duration(p.Modes))
}

// End returns a time after all due times.
func (p Plan) End() time.Time { return p.First.Add(p.Interval * time.Duration(p.Ticks+2)) }

// Next returns the next due time for a mode's jobs.
func (p Plan) Next(mode int, now time.Time) time.Time {
	first := p.FirstOf(mode)
	if now.Before(first) {
		return first
	}
	return first.Add(now.Sub(first).Truncate(p.Interval) + p.Interval)
}

// Name returns a job's name, which is also its lock's name.
func (p Plan) Name(mode, job int) string { return fmt.Sprintf("%d/%d", mode, job) }

// tick returns the number of the last due time, and the time since then. A timer can be slightly
// early, because it does not follow changes of the wall clock.
func (p Plan) tick(mode int, now time.Time) (tick int, late time.Duration) {
	since := now.Sub(p.FirstOf(mode))
	early := p.Interval / 100
	begun := (since + early).Truncate(p.Interval)
	return int(begun / p.Interval), since - begun
}

// A job's events.
const (
	requested = "requested" // an instance got the lock, or found it held
	refused   = "refused"   // an instance could not request the lock, because the store did not answer in time
	failed    = "failed"    // anything that should not happen
	ran       = "ran"       // a run began
	released  = "released"  // a run's lock was released; the due time is the run's
)

// A Recorder prints a process's events as lines for Read.
type Recorder struct {
	Plan Plan
	Out  io.Writer // each line is written at once
}

// Run prints the start of a run.
func (r Recorder) Run(mode, job int) {
	now := time.Now()
	r.print(ran, mode, job, now, now)
}

// Observe returns an option for all jobs' locks.
func (r Recorder) Observe() dibs.Option {
	return dibs.Observe(dibs.Hooks{
		AcquireEnd: func(_ context.Context, e dibs.AcquireEnd) {
			now := time.Now()
			switch {
			case e.Err == nil || errors.Is(e.Err, dibs.ErrBusy):
				r.printLock(requested, e.Name, now, now)
			case errors.Is(e.Err, dibs.ErrUnavailable):
				r.printLock(refused, e.Name, now, now)
			default:
				fmt.Fprintln(r.Out, failed, e.Name, e.Err)
			}
		},
		Released: func(_ context.Context, e dibs.Released) {
			now := time.Now()
			r.printLock(released, e.Name, now.Add(-e.Held), now)
		},
		Lost: func(_ context.Context, e dibs.Lost) { fmt.Fprintln(r.Out, failed, e.Name, e.Err) },
	})
}

func (r Recorder) printLock(event, name string, start, now time.Time) {
	var mode, job int
	if _, err := fmt.Sscanf(name, "%d/%d", &mode, &job); err != nil {
		fmt.Fprintln(r.Out, failed, name, err)
		return
	}
	r.print(event, mode, job, start, now)
}

// print prints an event, with the last due time before another time, and the time from this due
// time to the event.
func (r Recorder) print(event string, mode, job int, start, now time.Time) {
	tick, late := r.Plan.tick(mode, start)
	fmt.Fprintln(r.Out, event, mode, job, tick, (late + now.Sub(start)).Nanoseconds())
}
