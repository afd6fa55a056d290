package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/spf13/cobra"
)

func electCmd(a *app) *cobra.Command {
	j := new(job)
	var restart bool
	c := &cobra.Command{
		Use:   "elect [flags] NAME [-- COMMAND [ARG…]]",
		Short: "Run a command while leading an election",
		Long: `One of the processes that run dibs elect NAME leads and runs COMMAND; the others
stand by. When the leader ends or dies, the next one leads. If a leader cannot
renew its term, its COMMAND is ended in time, as with dibs run, and dibs
campaigns again.

When COMMAND ends, dibs resigns and exits with its exit code. With --restart it
campaigns again, behind the other candidates. Signals are forwarded to COMMAND;
while dibs stands by, they terminate dibs. Without COMMAND, dibs prints the
leader and each change until a signal ends it.

DIBS_FENCE, in the environment of COMMAND, is the number of the term. It grows
with each term.

` + codesOfElection,
		Example: `  # one scheduler in the fleet, always
  dibs elect --restart scheduler -- ./scheduler

  # show the leader and each change
  dibs elect scheduler`,
		RunE: func(c *cobra.Command, args []string) error {
			names, argv, err := namesAndCommand(c, args)
			if err != nil {
				return err
			}
			if len(names) > 1 {
				return usage("%s: an election has one NAME", view.Quoted(names))
			}
			if len(argv) == 0 && j.shell == "" {
				return observe(a, names[0])
			}
			return elect(a, j, names[0], argv, restart)
		},
	}
	j.leaseFlags(c.Flags(), a.con)
	j.commandFlags(c.Flags())
	c.Flags().BoolVar(&restart, "restart", false, "campaign again when COMMAND has ended")
	return c
}

// elect runs dibs elect with a command.
func elect(a *app, j *job, name string, argv []string, restart bool) error {
	r := newRun(a, j, []string{name})
	return r.finish(r.lead(a, j, argv, restart))
}

// lead runs the command while this process leads, once or again and again.
func (r *run) lead(a *app, j *job, argv []string, restart bool) (err error) {
	if err := r.open(a, j, argv); err != nil {
		return err
	}
	defer func() {
		r.monitor.Close()
		err = errors.Join(err, r.close())
	}()
	name := j.names[0]
	for {
		watchdog := supervise.StartWatchdog(r.signals)
		r.beginTerm()
		lease, err := r.campaign(j, name)
		if err != nil {
			watchdog.Stop()
			return err
		}
		a.con.logf("leading %q, term %d", name, lease.Fence())
		err = r.under(lease, watchdog)
		watchdog.Stop()
		lost := errors.Is(err, dibs.ErrLost)
		notStarted := errors.As(err, new(*supervise.StartError))
		if r.endForwarded || r.end.Interrupted() || r.end.HungUp || notStarted || !lost && !restart {
			return err
		}
		a.con.logf("no longer leading %q%s", name, reasonSuffix(err))
	}
}

// beginTerm forgets the last term: the outcome is about the current term.
func (r *run) beginTerm() {
	o := &r.outcome
	r.waiting, r.acquired, r.end = time.Now(), time.Time{}, supervise.End{}
	o.Code, o.Fence, o.Held = nil, 0, 0
}

func reasonSuffix(err error) string {
	if err == nil {
		return ""
	}
	return ": " + view.ErrorText(err)
}

// campaign waits until this process leads. It goes on while the store is unreachable. A
// termination signal ends it.
func (s *session) campaign(j *job, name string) (*dibs.Lease, error) {
	if err := s.refuseDeadlock(&j.lockRequest); err != nil {
		return nil, err
	}
	const pause = 100 * time.Millisecond // a command that fails at once must not use the whole processor
	ctx, stop := s.signals.context()
	s.monitor.SetWaiting(j.names, true)
	p := s.progress(j.names)
	lease, err := s.retryWhile(ctx, s.isAway, time.Now().Add(maxDuration), func() (*dibs.Lease, error) {
		p.end() // from an earlier attempt, with another client
		if !sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
		return s.locks.Election(name, append(j.options(0), dibs.Observe(p.hooks()))...).Campaign(ctx)
	})
	signalled := stop()
	p.end()
	if err == nil {
		s.monitor.SetHolding(lease)
	}
	switch {
	case signalled != nil && err == nil:
		return nil, errors.Join(signalled, lease.Unlock())
	case signalled != nil:
		return nil, signalled
	}
	return lease, err
}

// observe prints the leader and each change until a termination signal arrives.
func observe(a *app, name string) error {
	s, err := a.connect(untilExit)
	if err != nil {
		return err
	}
	ctx, stop := s.signals.context()
	for leader, err := range s.locks.Election(name).Watch(ctx) {
		if err = s.printLeader(name, leader, err); err != nil {
			return errors.Join(err, s.close())
		}
	}
	return errors.Join(stop(), s.close())
}

func (s *session) printLeader(name string, leader dibs.Leader, err error) error {
	owner := view.OwnerOf(string(leader.Token))
	switch {
	case err != nil && errors.Is(err, dibs.ErrUnavailable):
		s.con.logf("%s; trying again; store: %s", view.ErrorText(err), s.store.location)
		return nil
	case err != nil:
		return s.store.explain(err)
	case s.con.json:
		return view.WriteLine(s.con.out, view.LeaderEvent{
			Stamp: stamp("leader"), Name: name, Fence: leader.Term,
			Holder: owner.Short, Host: owner.Host, PID: owner.PID, Label: owner.Label,
		})
	case leader.Token == "":
		_, err = fmt.Fprintf(s.con.out, "no leader for %q\n", name)
	case leader.Term == 0:
		_, err = fmt.Fprintf(s.con.out, "%s leads %q\n", owner, name)
	default:
		_, err = fmt.Fprintf(s.con.out, "%s leads %q, term %d\n", owner, name, leader.Term)
	}
	return err
}
