package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A job holds the flags of run and elect: a lock and a command that runs under it.
type job struct {
	lockRequest
	shell      string
	killAfter  durationFlag
	maxHold    durationFlag
	onLost     lossAction
	statusFile string
}

// commandFlags adds the flags of the command that runs under the lock to f.
func (j *job) commandFlags(f *pflag.FlagSet) {
	j.killAfter, j.onLost = noLimit, lossAction{signal: syscall.SIGTERM}
	f.StringVarP(&j.shell, "command", "c", "", "run the shell command `TEXT` with /bin/sh instead of COMMAND")
	f.Var(&j.killAfter, "kill-after", "time from the signal that asks COMMAND to end to SIGKILL (default 5s, or a quarter of --ttl if shorter)")
	f.Var(&j.maxHold, "max-hold", "longest run time; then COMMAND is asked to end and the exit code is 124 (default: no limit)")
	f.Var(&j.onLost, "on-lost", "signal that asks COMMAND to end when the lock is about to be lost: TERM, KILL, …; warn only prints a warning")
	f.StringVar(&j.statusFile, "status-file", "", "write the result to `FILE` at the end, as JSON")
}

// rules validates the flags about time and returns them.
func (j *job) rules() (rules, error) {
	ttl, killAfter := time.Duration(j.ttl), time.Duration(j.killAfter)
	if j.killAfter == noLimit {
		killAfter = min(5*time.Second, ttl/4)
	}
	if killAfter > ttl/2 {
		return rules{}, usage("--kill-after %v: want at most half of --ttl %v: the command must be dead before the lock expires", killAfter, ttl)
	}
	if j.maxHold > 0 && j.maxHold < j.minHold {
		return rules{}, usage("--max-hold %v: want at least --min-hold %v", time.Duration(j.maxHold), time.Duration(j.minHold))
	}
	return rules{killAfter: killAfter, onLost: j.onLost, maxHold: time.Duration(j.maxHold), ttl: ttl}, nil
}

// command returns the command to run. It fails if the command does not exist, so that no
// lock is acquired for it.
func (j *job) command(a *app, argv []string) (command, error) {
	switch {
	case j.shell != "" && len(argv) > 0:
		return command{}, usage("-c and COMMAND exclude each other")
	case j.shell != "":
		argv = []string{"/bin/sh", "-c", j.shell}
	case len(argv) == 0 || argv[0] == "":
		return command{}, usage("no COMMAND: write it after --")
	}
	return findCommand(argv, a.environ)
}

func (a *app) runCmd() *cobra.Command {
	j := new(job)
	c := &cobra.Command{
		Use:   "run [flags] NAME[,NAME…] -- COMMAND [ARG…]",
		Short: "Run a command while holding a lock",
		Long: `Run COMMAND while holding NAME, and release NAME when COMMAND has ended. Other
runs with the same NAME wait in order of arrival.

The lock is renewed while COMMAND runs. If renewals fail, or if dibs itself is
killed or stopped, COMMAND and all its descendants are killed before anyone else
can acquire the lock. dibs waits for processes that COMMAND leaves in its
process group, but not for daemons, which leave the group.

When the store becomes unreachable, dibs prints one line on stderr, and another
one when the store answers again.

The environment of COMMAND has DIBS_NAME, DIBS_TOKEN, DIBS_TTL_MS and
DIBS_FENCE, a number that grows with each holder of the name. Pass DIBS_FENCE to
whatever COMMAND writes to, which can then reject writes with a smaller one.

` + codesForHelp,
		Example: `  # one backup at a time, on any machine; wait for the previous one
  dibs run nightly -- ./backup.sh

  # from cron, on every machine: the first one runs it, the others do nothing
  dibs run -n --skip-ok --min-hold 10m report -- make report

  # at most three at a time; wait for two minutes at most
  dibs run --slots 3 -w 2m render -- ffmpeg -i in.mov out.mp4

  # two accounts, both or none
  dibs run account:1,account:2 -- ./transfer 1 2 100

  # on this machine only, without a server
  dibs run --local nightly -- ./backup.sh`,
		RunE: func(c *cobra.Command, args []string) error {
			name, argv, err := nameAndCommand(c, args)
			if err != nil {
				return err
			}
			return a.runJob(j, name, argv)
		},
	}
	j.flags(c.Flags())
	j.commandFlags(c.Flags())
	return c
}

// check validates the whole command line. It runs before the store is opened.
func (j *job) check(a *app, name string, argv []string) (command, rules, error) {
	if err := j.lockRequest.check(a, name); err != nil {
		return command{}, rules{}, err
	}
	r, err := j.rules()
	if err != nil {
		return command{}, r, err
	}
	cmd, err := j.command(a, argv)
	return cmd, r, err
}

// runJob runs dibs run.
func (a *app) runJob(j *job, name string, argv []string) (err error) {
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
		if !errors.Is(err, dibs.ErrLost) { // after a loss there is nothing to release
			err = errors.Join(err, closeAll())
		}
		err = a.writeOutcome(j, s, a.explain(err))
	}()
	cmd.watchdog = startWatchdogAsync()
	defer cmd.watchdog.stop()
	lease, err := a.waitForLock(locks, &j.lockRequest)
	if err != nil {
		return err
	}
	return a.runUnder(lease, cmd, rules, s)
}

// runUnder runs a command under a lease and releases the lease.
func (a *app) runUnder(lease *dibs.Lease, cmd command, r rules, s *outcome) error {
	s.acquired(lease)
	if a.json {
		a.event(event{Event: "acquired", Names: s.Names, Token: ownerOf(lease.Token()).short, Fence: lease.Fence(), Waited: s.Waited})
	}
	if err := extendIfShort(lease, r); err != nil {
		return errors.Join(err, ignoreLost(lease.Unlock()))
	}
	cmd.env = withEnv(cmd.env, append(environment(lease, s.Names, r.ttl), a.heldTokens(lease))...)
	code, reason := a.supervise(lease, cmd, r)
	s.Code = code
	err := releaseLease(lease, reason)
	s.Held = time.Since(s.since).Milliseconds()
	switch {
	case reason == nil && err != nil && !errors.Is(err, dibs.ErrLost):
		// The command has succeeded: a failed release does not change the exit code.
		a.logf("%s", errorText(a.explain(err)))
		err = nil
	case err == nil:
		a.logVerbose("released %s after %s", quoted(s.Names), brief(time.Since(s.since)))
	}
	switch {
	case errors.Is(reason, errMaxHold):
		return exitWith(exitMaxHold, fmt.Errorf("%s: %w and was ended", quoted(s.Names), reason))
	case reason != nil && !errors.Is(reason, dibs.ErrLost):
		return errors.Join(reason, ignoreLost(err)) // the command did not start
	case reason != nil:
		return exitWith(exitLost, fmt.Errorf("%w; the command ended with code %d", reason, code))
	case err != nil:
		return exitWith(exitLost, fmt.Errorf("%w; the command had ended with code %d", err, code))
	}
	return exitWith(code, nil)
}

// releaseLease releases a lease. If the command was ended for a reason, it waits for the
// store until the deadline of the lease at most.
func releaseLease(lease *dibs.Lease, reason error) error {
	if reason == nil {
		return lease.Unlock()
	}
	done := make(chan error, 1)
	go func() { done <- lease.Unlock() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Until(lease.Deadline())):
		return nil
	}
}

// extendIfShort extends a lease that was handed off, because such a lease starts with a
// shorter TTL. It does so only if the remaining time is too short for --kill-after.
func extendIfShort(lease *dibs.Lease, r rules) error {
	if time.Until(lease.Deadline()) > 2*r.killAfter {
		return nil
	}
	return lease.Extend(context.Background(), r.ttl)
}

// environment returns the variables that describe the lock to the command.
func environment(lease *dibs.Lease, names []string, ttl time.Duration) []string {
	env := []string{
		"DIBS_NAME=" + strings.Join(names, ","),
		"DIBS_TOKEN=" + lease.Token(),
		"DIBS_FENCE=" + strconv.FormatUint(lease.FenceOf(names[0]), 10),
		"DIBS_TTL_MS=" + strconv.FormatInt(ttl.Milliseconds(), 10),
	}
	if len(names) > 1 {
		var all []string
		for _, name := range names {
			all = append(all, strconv.FormatUint(lease.FenceOf(name), 10))
		}
		env = append(env, "DIBS_FENCES="+strings.Join(all, ","))
	}
	return env
}

// An outcome is the result of run or elect, as written to --status-file.
type outcome struct {
	Schema int       `json:"schema"`
	Names  []string  `json:"names"`
	Store  string    `json:"store"` // without credentials
	Begun  time.Time `json:"begun"`
	Result string    `json:"result"` // ran, busy, lost, max-hold, signal, trouble
	Fence  uint64    `json:"fence,omitempty"`
	Waited int64     `json:"waited_ms"`
	Held   int64     `json:"held_ms"`
	Away   int64     `json:"away_ms,omitempty"` // total time without an answer from the store
	Code   int       `json:"code"`              // of the command, if it ran
	Exit   int       `json:"exit_code"`         // of dibs
	Error  string    `json:"error,omitempty"`

	since time.Time
}

func (s *outcome) acquired(lease *dibs.Lease) {
	s.since = time.Now()
	s.Waited = s.since.Sub(s.Begun).Milliseconds()
	s.Fence = lease.FenceOf(s.Names[0])
}

// writeOutcome completes s, reports it with --json and --status-file, and returns err.
func (a *app) writeOutcome(j *job, s *outcome, err error) error {
	s.Exit, s.Result, s.Away = 0, "ran", a.monitor.totalOutage().Milliseconds()
	if err != nil {
		s.Exit = codeOf(err)
		if !silent(err) {
			s.Error = errorText(err)
		}
		s.Result = result(err, s)
	}
	if a.json {
		a.event(event{Event: "ended", Names: s.Names, Store: s.Store, Fence: s.Fence, Waited: s.Waited, Held: s.Held, Away: s.Away, Code: s.Exit})
	}
	if j.statusFile == "" {
		return err
	}
	f, failed := os.Create(j.statusFile)
	if failed == nil {
		failed = errors.Join(printLine(f, s), f.Close())
	}
	if failed != nil {
		a.logf("status file: %v", failed)
	}
	return err
}

func result(err error, s *outcome) string {
	switch {
	case errors.As(err, new(signalError)):
		return "signal"
	case s.since.IsZero() && s.Exit == exitTrouble:
		return "trouble"
	case s.since.IsZero():
		return "busy"
	case errors.Is(err, errMaxHold):
		return "max-hold"
	case errors.Is(err, dibs.ErrLost):
		return "lost"
	case !silent(err): // the command could not be run
		return "trouble"
	}
	return "ran"
}
