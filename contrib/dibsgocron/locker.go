package dibsgocron

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dibslock/dibs"
	"github.com/go-co-op/gocron/v2"
)

// A Locker is a gocron.Locker: it acquires a lock for each run, so only a single instance runs the
// job. It is safe for concurrent use. A scheduler needs a single Locker. Jobs with different needs
// can use their own (gocron.WithDistributedJobLocker).
type Locker struct {
	locks   *dibs.Client
	minHold time.Duration
	options []dibs.Option
	invalid error // the mistake in the options

	mu   sync.Mutex
	held map[context.Context][]*runLock // by job: gocron passes the same context to Lock and to the task
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker. A lock's name is the job's name. The name stays unavailable for
// minHold after a run starts, even if the run takes 1 ms. Late instances find it reserved, and do
// not run the job again.
//
// The interval is the time between a job's due times. The spread is how far apart the instances
// request the lock for the same due time. It adds up the differences between their clocks, late
// timers, slow requests, and a run's wait in [gocron.LimitModeWait]'s queue. A request takes at
// most the operation timeout. Each due run happens exactly once if minHold is longer than the
// spread, and shorter than the interval minus the spread. Half the interval tolerates the largest
// spread.
//
// A minHold that suits the job with the shortest interval suits all the scheduler's jobs. It is at
// most 24 h.
//
// The instances' due times must be the same. With [gocron.DurationJob] they begin when an instance
// starts: use [gocron.CronJob], or give [gocron.WithStartAt] a multiple of the interval. Otherwise
// a job can run more often, but its runs still start at least minHold apart.
//
// After a crash the name stays unavailable for minHold, or for the TTL if that is longer. With a
// TTL of at most minHold, the next due run takes place. A run longer than the interval keeps its
// lock. Due times during the run are skipped. The options are the same as for [dibs.Client.Mutex],
// except MinHold, Wait and Attempts. These are dibs.ErrInvalid, because minHold applies to each
// job, and a run does not wait.
func NewLocker(locks *dibs.Client, minHold time.Duration, options ...dibs.Option) *Locker {
	return &Locker{
		locks:   locks,
		minHold: minHold,
		options: append(slices.Clone(options), dibs.MinHold(minHold)),
		invalid: checkOptions(options),
		held:    make(map[context.Context][]*runLock),
	}
}

// checkOptions rejects the options that a Try call or minHold would replace.
func checkOptions(options []dibs.Option) error {
	for _, o := range options {
		switch name, _, _ := strings.Cut(o.String(), "("); name {
		case "MinHold":
			return fmt.Errorf("%w: MinHold given to NewLocker: its argument minHold is that of each job", dibs.ErrInvalid)
		case "Wait", "Attempts":
			return fmt.Errorf("%w: %s given to NewLocker: a run does not wait; give it to another lock", dibs.ErrInvalid, name)
		}
	}
	return nil
}

// Lock acquires a run's lock, or returns an error without waiting for the lock. After an error,
// gocron skips the run. The error is dibs.ErrBusy if another instance has the run, and
// dibs.ErrUnavailable if the store does not reply in time. Only the hook gocron.AfterLockError
// receives the error.
//
// Lock returns dibs.ErrInvalid for a minHold that is not positive. It also returns dibs.ErrInvalid
// for a name in the compiler's form for function literals, method values and generic functions.
// Other jobs, or another build, can use such a name for a different function. To name a job, use
// gocron.WithName.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	switch {
	case l.invalid != nil:
		return nil, l.invalid
	case l.minHold <= 0:
		return nil, fmt.Errorf("%w: minHold %v of job %q: must be longer than the instances are apart", dibs.ErrInvalid, l.minHold, name)
	case isGenerated(name):
		return nil, fmt.Errorf("%w: job %q has a name as the compiler gives to functions, which another job may have: give it another one with gocron.WithName", dibs.ErrInvalid, name)
	}
	lease, err := l.locks.Mutex(name, l.options...).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	r := &runLock{locker: l, job: ctx, lease: lease}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[ctx] = append(l.held[ctx], r)
	return r, nil
}

// isGenerated reports whether a name is in the form that the compiler gives to some functions.
// Function literals are numbered, a method value's name is the same for all receivers, and a
// generic function's for all types. The form is a package's path, a dot, and the function, as in
// example.com/shop/orders.(*Job).run-fm.
func isGenerated(name string) bool {
	_, function, found := strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
	return found && wellFormed.MatchString(function) && !strings.ContainsAny(name, " \t") && generated.MatchString(function)
}

var (
	wellFormed = regexp.MustCompile(`^[\pL_(]`)
	generated  = regexp.MustCompile(`(^|\.)func\d+(\.|-|$)|-range\d+(\.|$)|-fm$|\[\.\.\.\]`)
)

// Task returns a task whose context ends when its run's lock is lost, with cause dibs.ErrLost, or
// when gocron ends the job. dibs.Fence returns the lock's fence for it. After a loss the task
// returns dibs.ErrLost, which gocron passes to gocron.AfterJobRunsWithError.
//
// The scheduler or the job must use the same Locker. Otherwise the task returns dibs.ErrInvalid and
// does not call fn. If fn is nil, gocron's NewJob returns an error.
func (l *Locker) Task(fn func(ctx context.Context) error) gocron.Task {
	if fn == nil {
		return gocron.NewTask(nil)
	}
	return gocron.NewTask(func(job context.Context) error {
		r := l.removeOldest(job)
		if r == nil {
			return fmt.Errorf("%w: this Locker has no lock for the run: give it to gocron.WithDistributedLocker or WithDistributedJobLocker", dibs.ErrInvalid)
		}
		return runUnder(job, r.lease, fn)
	})
}

// removeOldest returns the lock for a run that begins, or nil. There are several only if a lock was
// lost before its task began: then each task has its own lock.
func (l *Locker) removeOldest(job context.Context) *runLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held[job]) == 0 {
		return nil
	}
	r := l.held[job][0]
	l.remove(r)
	return r
}

// remove removes a lock, if it is there. The caller holds mu.
func (l *Locker) remove(r *runLock) {
	rest := slices.DeleteFunc(l.held[r.job], func(other *runLock) bool { return other == r })
	if len(rest) == 0 {
		delete(l.held, r.job)
		return
	}
	l.held[r.job] = rest
}

// A runLock is a run's lock.
type runLock struct {
	locker *Locker
	job    context.Context
	lease  *dibs.Lease
}

// Unlock releases the lock. The name stays reserved until minHold ends. The context is not used,
// because gocron ends it when the scheduler stops.
func (r *runLock) Unlock(context.Context) error {
	r.locker.mu.Lock()
	r.locker.remove(r)
	r.locker.mu.Unlock()
	return r.lease.Unlock()
}
