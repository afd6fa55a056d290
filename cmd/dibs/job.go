package main

import (
	"syscall"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/spf13/pflag"
)

// A job holds the flags for run and elect: a lock and a command that runs under it.
type job struct {
	lockRequest
	shell        string
	killAfter    durationFlag
	maxHold      durationFlag
	onLost       lossFlag
	statusFile   string
	keepEnv      bool
	leaveDaemons bool
}

// commandFlags adds the flags for the command that runs under the lock to f.
func (j *job) commandFlags(f *pflag.FlagSet) {
	j.killAfter, j.onLost = noLimit, lossFlag{Signal: syscall.SIGTERM}
	f.StringVarP(&j.shell, "command", "c", "", "run the shell command `TEXT` with /bin/sh instead of COMMAND")
	f.Var(&j.killAfter, "kill-after", "time from the signal that asks COMMAND to end to SIGKILL (default 5s, or a quarter of --ttl if shorter)")
	f.Var(&j.maxHold, "max-hold", "longest run time; then COMMAND is asked to end and the exit code is 124 (default: no limit)")
	f.Var(&j.onLost, "on-lost", "signal that asks COMMAND to end when the lock is about to be lost: TERM, KILL, …; warn only prints a warning")
	f.BoolVar(&j.keepEnv, "keep-env", false, "let COMMAND inherit the password of the store, too; for a COMMAND that uses dibs itself")
	f.BoolVar(&j.leaveDaemons, "leave-daemons", false, "when COMMAND has ended, wait for its process group only")
	f.StringVar(&j.statusFile, "status-file", "", "write the result to `FILE` at the end, as JSON")
}

// rules validates the flags about time and returns them.
func (j *job) rules() (supervise.Rules, error) {
	ttl, killAfter := time.Duration(j.ttl), time.Duration(j.killAfter)
	if j.killAfter == noLimit {
		killAfter = min(5*time.Second, ttl/4)
	}
	if killAfter > ttl/2 {
		return supervise.Rules{}, usage("--kill-after %v: want at most half of --ttl %v: the command must be dead before the lock expires", killAfter, ttl)
	}
	if j.maxHold > 0 && j.maxHold < j.minHold {
		return supervise.Rules{}, usage("--max-hold %v: want at least --min-hold %v", time.Duration(j.maxHold), time.Duration(j.minHold))
	}
	return supervise.Rules{KillAfter: killAfter, OnLost: supervise.LossAction(j.onLost), MaxHold: time.Duration(j.maxHold), TTL: ttl, LeaveDaemons: j.leaveDaemons}, nil
}

// command returns the command to run. It fails if the command does not exist, so that no lock is
// acquired for it.
func (j *job) command(argv []string, env environment) (supervise.Command, error) {
	switch {
	case j.shell != "" && len(argv) > 0:
		return supervise.Command{}, usage("-c and COMMAND exclude each other")
	case j.shell != "":
		argv = []string{"/bin/sh", "-c", j.shell}
	case len(argv) == 0 || argv[0] == "":
		return supervise.Command{}, usage("no COMMAND: write it after --")
	}
	if !j.keepEnv {
		env = env.withoutSecrets()
	}
	return supervise.Find(argv, env)
}

// check validates the whole command line. It runs before the store is opened.
func (j *job) check(a *app, names, argv []string) (supervise.Command, supervise.Rules, error) {
	if err := j.lockRequest.check(a, names); err != nil {
		return supervise.Command{}, supervise.Rules{}, err
	}
	r, err := j.rules()
	if err != nil {
		return supervise.Command{}, r, err
	}
	cmd, err := j.command(argv, a.env)
	return cmd, r, err
}
