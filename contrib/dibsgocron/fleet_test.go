package dibsgocron_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
)

// A fleet contains several instances of a program: schedulers with the same jobs. Each clock is
// ahead of the next. It counts each job's runs at each due time.
type fleet struct {
	interval  time.Duration // for each job
	ahead     time.Duration // from each instance's clock to the next
	jobs      int           // their due times are spread over the interval
	together  bool          // they are due at the same times instead
	ticks     int           // due times for each job
	more      int           // due times after those, which do not count
	work      time.Duration // for each run
	delay     func(instance, tick int) time.Duration
	scheduler []gocron.SchedulerOption
	job       []gocron.JobOption

	firsts map[string]time.Time // each job's first due time

	mu         sync.Mutex
	inProgress int           // Lock calls and runs
	requests   int           // Lock calls that have returned
	latest     time.Duration // Lock's return, after its due time
	runs       map[due]int   // by due time
	where      map[int]int   // by instance
}

// due is a job's due time.
type due struct{ job, tick int }

// skewed is a clock ahead of the real clock.
type skewed struct {
	clockwork.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

// watched is an instance's locker.
type watched struct {
	gocron.Locker
	f        *fleet
	instance int
	clock    skewed
}

func (w watched) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	w.f.add(1)
	if w.f.delay != nil {
		tick, _ := w.f.tick(w.clock, name)
		time.Sleep(w.f.delay(w.instance, tick)) // as a slow timer or a slow store would
	}
	lock, err := w.Locker.Lock(ctx, name)
	_, late := w.f.tick(w.clock, name)
	w.f.requested(late)
	if err != nil {
		w.f.add(-1)
	}
	return lock, err
}

func (f *fleet) requested(late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	f.latest = max(f.latest, late)
}

func (f *fleet) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inProgress += n
}

// run runs all due times on an instance for each locker. It returns when no further run can start
// and all have ended.
func (f *fleet) run(t *testing.T, lockers []gocron.Locker) {
	t.Helper()
	f.runs, f.where = make(map[due]int), make(map[int]int)
	base := time.Now().Add(f.interval / 2)
	f.firsts = make(map[string]time.Time)
	for job := range f.jobs {
		f.firsts[jobName(job)] = base
		if !f.together {
			f.firsts[jobName(job)] = base.Add(f.interval * time.Duration(job) / time.Duration(f.jobs))
		}
	}
	for i, locker := range lockers {
		s := f.instance(t, i, locker, skewed{clockwork.NewRealClock(), time.Duration(len(lockers)-i) * f.ahead})
		s.Start()
		defer func() {
			if err := s.Shutdown(); err != nil {
				t.Error(err)
			}
		}()
	}
	end := base.Add(time.Duration(f.ticks+f.more)*f.interval + f.interval/2)
	time.Sleep(time.Until(end)) // all jobs have a stop time before
	for f.busy() {
		time.Sleep(10 * time.Millisecond) // between polls
	}
}

func (f *fleet) busy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.inProgress > 0
}

func (f *fleet) instance(t *testing.T, i int, locker gocron.Locker, clock skewed) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(append(slices.Clone(f.scheduler), gocron.WithClock(clock), gocron.WithDistributedLocker(watched{locker, f, i, clock}))...)
	if err != nil {
		t.Fatal(err)
	}
	for job := range f.jobs {
		name := jobName(job)
		first := f.firsts[name]
		stop := first.Add(time.Duration(f.ticks+f.more)*f.interval - f.interval/2)
		_, err := s.NewJob(gocron.DurationJob(f.interval), gocron.NewTask(func() {
			tick, _ := f.tick(clock, name)
			f.count(i, due{job, tick})
			time.Sleep(f.work)
			f.add(-1)
		}), append(slices.Clone(f.job), gocron.WithName(name), gocron.WithStartAt(gocron.WithStartDateTime(first)), gocron.WithStopAt(gocron.WithStopDateTime(stop)))...)
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func jobName(job int) string { return fmt.Sprintf("job-%d", job) }

// tick returns the number of a job's nearest due time, and how late it is now.
func (f *fleet) tick(clock skewed, name string) (int, time.Duration) {
	since := clock.Now().Sub(f.firsts[name])
	tick := since.Round(f.interval)
	return int(tick / f.interval), since - tick
}

func (f *fleet) count(instance int, d due) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[d]++
	f.where[instance]++
}

// spread returns how far apart this many instances requested the lock for the same due time, at
// most. It is half the interval if gocron left out a due time, because it was later.
func (f *fleet) spread(instances int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests < f.jobs*f.ticks*instances {
		return f.interval / 2
	}
	return f.latest + time.Duration(instances-1)*f.ahead
}

// A tally counts the due times with exactly one run, without a run, and with more.
type tally struct{ once, never, more int }

func (f *fleet) tally() (n tally) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for job := range f.jobs {
		for tick := range f.ticks {
			switch f.runs[due{job, tick}] {
			case 0:
				n.never++
			case 1:
				n.once++
			default:
				n.more++
			}
		}
	}
	return n
}

func (f *fleet) wantTally(t *testing.T, want tally) {
	t.Helper()
	if have := f.tally(); have != want {
		t.Errorf("due times: %+v, want %+v; runs by instance %v, the latest request %v after its due time", have, want, f.where, f.latest)
	}
}
