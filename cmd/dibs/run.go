package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/spf13/cobra"
)

func runCmd(a *app) *cobra.Command {
	j := new(job)
	c := &cobra.Command{
		Use:   "run [flags] NAME… -- COMMAND [ARG…]",
		Short: "Run a command while holding a lock",
		Long: `Run COMMAND while holding NAME, and release NAME when COMMAND has ended. Other
runs with the same NAME wait in order of arrival. Of several names, all are held
or none.

The lock is renewed while COMMAND runs. If renewals fail, or if dibs itself is
killed or stopped, COMMAND and all its descendants are killed before anyone else
can acquire the lock. dibs waits for all processes that COMMAND has started, but
not for daemons: those have left the process group and closed their files.

When the store becomes unreachable, dibs prints one line on stderr, and another
one when the store answers again.

The environment of COMMAND has DIBS_NAME, DIBS_TOKEN, DIBS_TTL_MS and
DIBS_FENCE, a number that grows with each holder of the name. Pass DIBS_FENCE to
whatever COMMAND writes to, which can then reject writes with a smaller one.
DIBS_NAMES and DIBS_FENCES are JSON arrays, for several names.

` + codesForHelp,
		Example: `  # one backup at a time, on any machine; wait for the previous one
  dibs run nightly -- ./backup.sh

  # from cron, on every machine: the first one runs it, the others do nothing
  dibs run -n --skip-ok --min-hold 10m report -- make report

  # at most three at a time; wait for two minutes at most
  dibs run --slots 3 -w 2m render -- ffmpeg -i in.mov out.mp4

  # two accounts, both or none
  dibs run account:1 account:2 -- ./transfer 1 2 100

  # on this machine only, without a server
  dibs run --local nightly -- ./backup.sh`,
		RunE: func(c *cobra.Command, args []string) error {
			names, argv, err := namesAndCommand(c, args)
			if err != nil {
				return err
			}
			return runJob(a, j, names, argv)
		},
	}
	j.flags(c.Flags(), a.con)
	j.minHoldFlag(c.Flags())
	j.commandFlags(c.Flags())
	return c
}

// runJob runs dibs run.
func runJob(a *app, j *job, names, argv []string) error {
	r := newRun(a, j, names)
	return r.finish(r.once(a, j, argv))
}

// A run is a command under a lock, or several times under a lock in an election.
type run struct {
	*session     // nil until the store is open
	con          *console
	command      supervise.Command
	rules        supervise.Rules
	statusFile   string
	outcome      outcome
	waiting      time.Time // since when
	acquired     time.Time // zero: not acquired
	endForwarded bool      // a termination signal was forwarded to the command
	end          supervise.End
}

func newRun(a *app, j *job, names []string) *run {
	now := time.Now()
	return &run{
		con: a.con, statusFile: j.statusFile, waiting: now,
		outcome: outcome{Schema: view.Schema, Names: names, Begun: now},
	}
}

// open validates the command line and opens the store.
func (r *run) open(a *app, j *job, argv []string) (err error) {
	if r.command, r.rules, err = j.check(a, r.outcome.Names, argv); err != nil {
		return err
	}
	if r.session, err = a.connect(withCommand); err != nil {
		return err
	}
	r.outcome.Store = r.store.location
	return nil
}

// once waits for the lock and runs the command under it.
func (r *run) once(a *app, j *job, argv []string) (err error) {
	if err := r.open(a, j, argv); err != nil {
		return err
	}
	defer func() {
		r.monitor.Close()
		if !errors.Is(err, dibs.ErrLost) { // after a loss there is nothing to release
			err = errors.Join(err, r.close())
		}
	}()
	watchdog := supervise.StartWatchdog(r.signals)
	defer watchdog.Stop()
	lease, err := r.waitForLock(&j.lockRequest)
	if err != nil {
		return err
	}
	return r.under(lease, watchdog)
}

// under runs the command under a lease and releases the lease.
func (r *run) under(lease *dibs.Lease, watchdog *supervise.Watchdog) error {
	o := &r.outcome
	r.acquired = time.Now()
	o.Waited, o.Fence = r.acquired.Sub(r.waiting).Milliseconds(), lease.FenceOf(o.Names[0])
	r.con.event(view.AcquiredEvent{
		Stamp: stamp("acquired"), Names: o.Names, Token: view.OwnerOf(string(lease.Token())).Short, Fence: lease.Fence(), Waited: o.Waited,
	})
	if err := extendIfShort(lease, r.rules); err != nil {
		return errors.Join(err, ignoreLost(lease.Unlock()))
	}
	code, reason := r.supervise(lease, watchdog)
	released, err := releaseLease(lease, reason)
	o.Held = time.Since(r.acquired).Milliseconds()
	switch {
	case reason == nil && err != nil && !errors.Is(err, dibs.ErrLost):
		// The command succeeded: a failed release does not change the exit code.
		r.con.logf("%s", view.ErrorText(r.store.explain(err)))
		err = nil
	case released:
		r.logVerbose("released %s after %s", view.Quoted(o.Names), view.Brief(time.Since(r.acquired)))
	}
	switch {
	case errors.Is(reason, supervise.ErrMaxHold):
		return exitWith(exitMaxHold, fmt.Errorf("%s: %w and was ended", view.Quoted(o.Names), r.explainEnd(reason)))
	case reason != nil && !errors.Is(reason, dibs.ErrLost):
		return errors.Join(reason, ignoreLost(err)) // the command did not start
	case reason != nil:
		return exitWith(exitLost, fmt.Errorf("%w; the command ended with code %d", r.explainEnd(reason), code))
	case err != nil:
		return exitWith(exitLost, fmt.Errorf("%w; the command had ended with code %d", err, code))
	}
	return endOf(r.end, r.endForwarded)
}

// supervise runs the command and returns its exit code. err is the reason why dibs ended it, or
// nil.
func (r *run) supervise(lease *dibs.Lease, watchdog *supervise.Watchdog) (code int, err error) {
	command := r.command.WithEnv(append(variables(lease, r.outcome.Names, r.rules.TTL), r.heldTokens(lease))...)
	return supervise.Run(lease, command, r.rules, supervise.Caller{
		Watchdog:   watchdog,
		Reporter:   runReporter{r, lease.Name()},
		NotRenewed: func() error { return r.monitor.NotRenewed(lease) },
	})
}

// A runReporter prints a run's events under a single lease.
type runReporter struct {
	*run
	lease string // its name
}

// Started implements supervise.Reporter.
func (r runReporter) Started(pid int) {
	r.con.event(view.StartedEvent{Stamp: stamp("started"), Name: r.lease, PID: pid})
	if limits := supervise.Limits(); limits != "" {
		r.logVerbose("%s", limits)
	}
}

// Forwarded implements supervise.Reporter.
func (r runReporter) Forwarded(s syscall.Signal) {
	r.endForwarded = r.endForwarded || supervise.IsTermination(s)
}

// Ended implements supervise.Reporter.
func (r runReporter) Ended(end supervise.End) {
	code := supervise.ExitCode(end.Status)
	r.end, r.outcome.Code = end, &code
}

// Lost implements supervise.Reporter.
func (r runReporter) Lost(reason error) {
	text := view.ErrorText(r.explainEnd(reason))
	r.con.event(view.LostEvent{Stamp: stamp("lost"), Name: r.lease, Store: r.store.location, Error: text})
	if r.rules.OnLost.Warn {
		r.con.logf("%s; the command goes on", text)
	}
}

// Leftover implements supervise.Reporter.
func (r runReporter) Leftover(group int) {
	r.con.logf("the command has ended, but processes of its group %d or processes with its files are running: waiting for them; see --leave-daemons", group)
}

// Refused implements supervise.Reporter.
func (r runReporter) Refused(pid int) {
	r.con.logf("process %d of the command must end, and this user may not kill it: waiting for it", pid)
}

// explainEnd adds the flag that caused the command's end to the reason, and the names for a loss
// that only package supervise knows.
func (r *run) explainEnd(reason error) error {
	if errors.Is(reason, supervise.ErrMaxHold) {
		return rephrased{reason, "the command ran longer than --max-hold"}
	}
	why, nameless := strings.CutPrefix(reason.Error(), dibs.ErrLost.Error()+": ")
	if !nameless {
		return reason
	}
	if errors.Is(reason, supervise.ErrLate) {
		why += "; use a longer --ttl"
	}
	return rephrased{reason, fmt.Sprintf("lease on %s lost: %s", view.Quoted(r.outcome.Names), why)}
}

// releaseLease releases a lease. If the command was ended for a reason, it waits for the store
// until the lease's deadline at most. Then it reports neither a release nor an error.
func releaseLease(lease *dibs.Lease, reason error) (released bool, err error) {
	var deadline <-chan time.Time
	if reason != nil {
		deadline = time.After(time.Until(lease.Deadline()))
	}
	done := make(chan error, 1)
	go func() { done <- lease.Unlock() }()
	select {
	case err := <-done:
		return err == nil, err
	case <-deadline:
		return false, nil
	}
}

// extendIfShort extends a lease granted by hand-off, because such a lease starts with a shorter
// TTL. It does so only if the remaining time is too short for --kill-after.
func extendIfShort(lease *dibs.Lease, r supervise.Rules) error {
	if time.Until(lease.Deadline()) > 2*r.KillAfter {
		return nil
	}
	return lease.Extend(context.Background(), r.TTL)
}

// variables returns the variables that describe the lock to the command.
func variables(lease *dibs.Lease, names []string, ttl time.Duration) []string {
	return append(lockVars(lease, names), "DIBS_TTL_MS="+strconv.FormatInt(ttl.Milliseconds(), 10))
}
