package dibsgocron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/driver/ownertoken"
	"github.com/go-co-op/gocron/v2"
)

// An Elector is a gocron.Elector: among many instances, the leader runs all jobs. It campaigns in
// the background until Close. It is safe for concurrent use.
type Elector struct {
	name     string
	election *dibs.Election
	holds    func(ctx context.Context, name string) error // of the client
	stop     context.CancelCauseFunc
	done     chan struct{} // closed when the campaign ended
	err      error         // why it ended by itself; set before done is closed

	mu     sync.Mutex
	term   context.Context // the current term's; nil without a term
	reason error           // why there is no term
	tasks  sync.WaitGroup  // the term's; counted up while mu is held and there is a term
}

var _ gocron.Elector = (*Elector)(nil)

var (
	errClosed      = errors.New("the elector was closed")
	errCampaigning = errors.New("the first campaign is in progress")
)

// NewElector returns an Elector that campaigns in a name's election at once. The options are the
// same as for dibs.Client.Election. After the leader crashes, another instance leads within the
// TTL. If a name or an option is invalid, IsLeader and Close return dibs.ErrInvalid.
func NewElector(locks *dibs.Client, name string, options ...dibs.Option) *Elector {
	ctx, stop := context.WithCancelCause(context.Background())
	e := &Elector{holds: locks.Holds, name: name, stop: stop, done: make(chan struct{}), reason: errCampaigning}
	hooks := dibs.Hooks{
		Queued:     func(_ context.Context, q dibs.Queued) { e.setReason(leaderError(string(q.Holder))) },
		TermFailed: func(_ context.Context, f dibs.TermFailed) { e.setReason(f.Err) },
	}
	e.election = locks.Election(name, append(slices.Clone(options), dibs.Observe(hooks))...)
	go func() {
		defer close(e.done)
		e.err = e.election.Run(ctx, e.lead)
		e.setReason(cmp.Or(e.err, context.Cause(ctx), dibs.ErrClosed)) // without an error it was asked to end
	}()
	return e
}

// Resign lets another instance lead, and campaigns again behind the other candidates. Nobody leads
// until the term's tasks return, but Resign does not wait for them. It reports whether this
// instance was the leader.
func (e *Elector) Resign() bool { return e.election.Resign() }

// lead serves a single term: until it ends, and then until its tasks return.
func (e *Elector) lead(term context.Context) error {
	e.mu.Lock()
	e.term = term
	e.mu.Unlock()
	<-term.Done()
	e.mu.Lock()
	e.term, e.reason = nil, context.Cause(term)
	e.mu.Unlock()
	e.tasks.Wait()
	return nil
}

func (e *Elector) setReason(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reason = err
}

// leaderError contains a leader's host and process, but not the rest of its token.
func leaderError(token string) error {
	parts := strings.SplitN(token, ":", 3)
	if len(parts) < 3 {
		return errors.New("another instance leads")
	}
	who := parts[0] + ":" + parts[1]
	if label := ownertoken.Label(token); label != "" {
		who += ":" + label
	}
	return fmt.Errorf("%s led when this instance joined the queue", who)
}

// IsLeader returns nil if this instance is the leader. Otherwise the error says why not, and who
// led when this instance joined the queue. gocron skips the run and shows this error to nobody.
// IsLeader sends nothing. It compares the clock with the term's deadline, so its result is correct
// even right after a pause of the process.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.check()
}

// check is IsLeader. The caller must hold mu.
func (e *Elector) check() error {
	reason := e.reason
	if e.term != nil {
		reason = context.Cause(e.term)
		if reason == nil {
			reason = e.holds(e.term, e.name)
		}
	}
	if reason == nil {
		return nil
	}
	return fmt.Errorf("dibs: not the leader of %q: %w", e.name, reason)
}

// Task returns a task whose context ends when the instance stops being the leader, or when gocron
// ends the job. The cause is dibs.ErrLost if the term is lost, and dibs.ErrResigned after a Resign.
// dibs.Fence returns the term's number for it. After a Resign or Close, nobody else leads until the
// tasks return. After a loss the task returns dibs.ErrLost, which gocron passes to
// gocron.AfterJobRunsWithError.
//
// If this instance is not the leader when the task begins, the task returns IsLeader's error and
// does not call fn. If fn is nil, gocron's NewJob returns an error.
func (e *Elector) Task(fn func(ctx context.Context) error) gocron.Task {
	if fn == nil {
		return gocron.NewTask(nil)
	}
	return gocron.NewTask(func(job context.Context) error {
		term, err := e.beginTask()
		if err != nil {
			return err
		}
		defer e.tasks.Done()
		lease, err := dibs.LeaseOf(term, e.name)
		if err != nil {
			return err
		}
		return runUnder(job, lease, fn)
	})
}

func (e *Elector) beginTask() (term context.Context, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return nil, err
	}
	e.tasks.Add(1)
	return e.term, nil
}

// Close ends the campaign and the contexts of the term's tasks. It waits until the tasks return;
// then the next candidate leads at once. It should be called after the scheduler's Shutdown. If the
// campaign already ended by itself, Close returns the error; otherwise it returns nil.
func (e *Elector) Close() error {
	e.stop(errClosed)
	<-e.done
	return e.err
}
