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
		Short: "Run a command while leading, and stand by otherwise",
		Long: `Of all that run dibs elect NAME, one leads, and runs COMMAND; the others stand
by. When the leader ends, or dies, the next one leads. A leader that cannot
renew its term has its COMMAND ended in time, as with dibs run, and stands
again.

dibs ends when COMMAND does, with its exit code, and gives the leadership up;
with --restart it stands again, behind the others. A signal is passed on to
COMMAND, or ends dibs if that stands by. Without COMMAND it prints who leads,
and each change, until a signal comes.

COMMAND finds the number of its term in DIBS_FENCE: it grows from term to term.

` + codesOfElection,
		Example: `  # one scheduler in the fleet, always
  dibs elect --restart scheduler -- ./scheduler

  # who leads?
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
	c.Flags().BoolVar(&restart, "restart", false, "stand again when COMMAND has ended")
	return c
}

// elect is dibs elect with a command.
func (a *app) elect(j *job, name string, argv []string, restart bool) (err error) {
	if strings.Contains(name, ",") {
		return usage("an election has one NAME, without a comma")
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
		a.logf("not leading %q any more%s", name, reasonSuffix(err))
	}
}

func reasonSuffix(err error) string {
	if err == nil {
		return ""
	}
	return ": " + errorText(err)
}

// campaign waits until this process leads, however long the store is away.
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
		if !errors.Is(err, dibs.ErrUnavailable) { // else it is reported, see witness
			return lease, err
		}
	}
	return nil, context.Cause(ctx)
}

// sleep reports whether the context has lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// observe tells who leads, and each change, until a signal comes.
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
	who := ownerOf(leader.Token)
	switch {
	case err != nil && errors.Is(err, dibs.ErrUnavailable):
		a.logf("%s; trying again; store: %s", errorText(err), a.monitor.location)
		return nil
	case err != nil:
		return a.explain(err)
	case a.json:
		return printLine(a.out, stamped(event{Event: "leader", Name: name, Holder: who.short, Host: who.host, PID: who.pid, Label: who.label, Fence: leader.Term}))
	case leader.Token == "":
		_, err = fmt.Fprintf(a.out, "nobody leads %q\n", name)
	case leader.Term == 0:
		_, err = fmt.Fprintf(a.out, "%s leads %q\n", who, name)
	default:
		_, err = fmt.Fprintf(a.out, "%s leads %q, term %d\n", who, name, leader.Term)
	}
	return err
}
