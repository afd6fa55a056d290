package dibsgocron_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
)

// A fleet is a number of instances of one program: schedulers with the same jobs. The clock
// of each is ahead of the next one's. It counts the runs of each job at each due time.
type fleet struct {
	interval time.Duration // of each job
	ahead    time.Duration // of each instance's clock before the next one's
	jobs     int           // their due times are spread over the interval
	ticks    int           // due times of each job
	work     time.Duration // of each run
	delay    func(instance, tick int) time.Duration

	mu         sync.Mutex
	inProgress int           // calls of Lock, and runs
	runs       map[due]int   // by due time
	where      map[int]int   // by instance
	latest     time.Duration // of the starts, after their due times
}

// due is one due time of a job.
type due struct{ job, tick int }

// skewed is a clock that is ahead of the real one.
type skewed struct {
	clockwork.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

// watched is the locker of one instance.
type watched struct {
	gocron.Locker
	f     *fleet
	delay func() time.Duration // before Lock, as of a slow timer or a slow store
}

func (w watched) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	w.f.add(1)
	time.Sleep(w.delay())
	lock, err := w.Locker.Lock(ctx, name)
	if err != nil {
		w.f.add(-1)
	}
	return lock, err
}

func (f *fleet) add(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inProgress += n
}

// run runs all due times on one instance for each locker. It returns when no further run can
// start and all have ended.
func (f *fleet) run(t *testing.T, lockers []gocron.Locker) {
	t.Helper()
	f.runs, f.where = make(map[due]int), make(map[int]int)
	base := time.Now().Add(f.interval / 2)
	for i, locker := range lockers {
		s := f.instance(t, i, locker, skewed{clockwork.NewRealClock(), time.Duration(len(lockers)-i) * f.ahead}, base)
		s.Start()
		defer func() {
			if err := s.Shutdown(); err != nil {
				t.Error(err)
			}
		}()
	}
	end := base.Add(time.Duration(f.ticks)*f.interval + f.interval/2)
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

func (f *fleet) instance(t *testing.T, i int, locker gocron.Locker, clock skewed, base time.Time) gocron.Scheduler {
	t.Helper()
	delay := func() time.Duration {
		if f.delay == nil {
			return 0
		}
		tick, _ := f.tick(clock, base)
		return f.delay(i, tick)
	}
	s, err := gocron.NewScheduler(gocron.WithClock(clock), gocron.WithDistributedLocker(watched{locker, f, delay}))
	if err != nil {
		t.Fatal(err)
	}
	for job := range f.jobs {
		first := base.Add(f.interval * time.Duration(job) / time.Duration(f.jobs))
		stop := first.Add(time.Duration(f.ticks)*f.interval - f.interval/2)
		_, err := s.NewJob(gocron.DurationJob(f.interval), gocron.NewTask(func() {
			tick, late := f.tick(clock, first)
			f.count(i, due{job, tick}, late)
			time.Sleep(f.work)
			f.add(-1)
		}), gocron.WithName(fmt.Sprintf("job-%d", job)),
			gocron.WithStartAt(gocron.WithStartDateTime(first)), gocron.WithStopAt(gocron.WithStopDateTime(stop)))
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// tick returns the number of the nearest due time, and how late it is now.
func (f *fleet) tick(clock clockwork.Clock, first time.Time) (int, time.Duration) {
	since := clock.Now().Sub(first)
	tick := since.Round(f.interval)
	return int(tick / f.interval), since - tick
}

func (f *fleet) count(instance int, d due, late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[d]++
	f.where[instance]++
	f.latest = max(f.latest, late)
}

// A tally is the number of due times with exactly one run, without one, and with more.
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
		t.Errorf("due times: %+v, want %+v; runs by instance %v, the latest %v after its due time", have, want, f.where, f.latest)
	}
}
