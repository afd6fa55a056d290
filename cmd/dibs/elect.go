package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dibslock/dibs"
	"github.com/spf13/cobra"
)

func (a *app) electCmd() *cobra.Command {
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
			name, argv, err := nameAndCommand(c, args)
			if err != nil {
				return err
			}
			if len(argv) == 0 && j.shell == "" {
				return a.observe(name)
			}
			return a.elect(j, name, argv, restart)
		},
	}
	j.leaseFlags(c.Flags())
	j.commandFlags(c.Flags())
	c.Flags().BoolVar(&restart, "restart", false, "campaign again when COMMAND has ended")
	return c
}

// elect runs dibs elect with a command.
func (a *app) elect(j *job, name string, argv []string, restart bool) (err error) {
	if strings.Contains(name, ",") {
		return usage("elect %q: want one NAME, without commas", name)
	}
	cmd, rules, err := j.check(a, name, argv)
	if err != nil {
		return err
	}
	a.runsCommand = true
	locks, closeAll, err := a.client()
	if err != nil {
		return err
	}
	s := &outcome{Schema: schema, Names: j.names, Store: a.monitor.location, Begun: time.Now()}
	defer func() {
		a.monitor.end()
		err = a.writeOutcome(j, s, a.explain(errors.Join(err, closeAll())))
	}()
	for {
		cmd.watchdog = startWatchdogAsync()
		lease, err := a.campaign(locks, j, name)
		if err != nil {
			cmd.watchdog.stop()
			return err
		}
		a.logf("leading %q, term %d", name, lease.Fence())
		err = a.runUnder(lease, cmd, rules, s)
		cmd.watchdog.stop()
		lost := errors.Is(err, dibs.ErrLost)
		if a.endForwarded || !lost && !restart {
			return err
		}
		a.logf("no longer leading %q%s", name, reasonSuffix(err))
	}
}

func reasonSuffix(err error) string {
	if err == nil {
		return ""
	}
	return ": " + errorText(err)
}

// campaign waits until this process leads. It goes on while the store is unreachable. A
// termination signal ends it.
func (a *app) campaign(locks *dibs.Client, j *job, name string) (*dibs.Lease, error) {
	if err := a.refuseDeadlock(locks, &j.lockRequest); err != nil {
		return nil, err
	}
	ctx, stop := a.signalContext()
	a.monitor.setWaiting(j.names, true)
	p := a.progress(locks, j.names)
	lease, err := a.retryCampaign(ctx, locks.Election(name, append(j.options(), dibs.Observe(p.hooks()))...))
	signalled := stop()
	p.end()
	if err == nil {
		a.monitor.setHolding(lease)
	}
	switch {
	case signalled != nil && err == nil:
		return nil, errors.Join(signalled, lease.Unlock())
	case signalled != nil:
		return nil, signalled
	}
	return lease, err
}

func (a *app) retryCampaign(ctx context.Context, e *dibs.Election) (*dibs.Lease, error) {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	for wait := shortest; sleep(ctx, wait); wait = min(2*wait, longest) {
		lease, err := e.Campaign(ctx)
		if !errors.Is(err, dibs.ErrUnavailable) { // storeMonitor reports outages
			return lease, err
		}
	}
	return nil, context.Cause(ctx)
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// observe prints the leader and each change until a termination signal arrives.
func (a *app) observe(name string) error {
	locks, closeAll, err := a.client()
	if err != nil {
		return err
	}
	ctx, stop := a.signalContext()
	for leader, err := range locks.Election(name).Observe(ctx) {
		if err = a.printLeader(name, leader, err); err != nil {
			return errors.Join(err, closeAll())
		}
	}
	return errors.Join(stop(), closeAll())
}

func (a *app) printLeader(name string, leader dibs.Leader, err error) error {
	owner := ownerOf(leader.Token)
	switch {
	case err != nil && errors.Is(err, dibs.ErrUnavailable):
		a.logf("%s; trying again; store: %s", errorText(err), a.monitor.location)
		return nil
	case err != nil:
		return a.explain(err)
	case a.json:
		return printLine(a.out, stamped(event{Event: "leader", Name: name, Holder: owner.short, Host: owner.host, PID: owner.pid, Label: owner.label, Fence: leader.Term}))
	case leader.Token == "":
		_, err = fmt.Fprintf(a.out, "no leader for %q\n", name)
	case leader.Term == 0:
		_, err = fmt.Fprintf(a.out, "%s leads %q\n", owner, name)
	default:
		_, err = fmt.Fprintf(a.out, "%s leads %q, term %d\n", owner, name, leader.Term)
	}
	return err
}
