// Package supervise runs a command under a lock, so that the command is dead before anyone can
// acquire the lock again.
//
// Two processes of the program share the work. The supervisor, which is [Run], holds the lock and
// forwards signals. The watchdog process, which package initialisation runs, starts the command and
// kills it if the supervisor is killed or stopped.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
)

// A Lease is the lock under which a command runs, such as a *dibs.Lease. A single goroutine calls
// its methods.
type Lease interface {
	Context() context.Context // ends when the lease is lost
	Deadline() time.Time      // when the lease is lost unless it is renewed
	Err() error               // the loss, or nil
}

// Rules are time limits for a command under a lock. All are positive.
type Rules struct {
	KillAfter time.Duration // from the signal that asks the command to end to SIGKILL
	OnLost    LossAction
	MaxHold   time.Duration // zero: no limit
	TTL       time.Duration // the lease's TTL

	// LeaveDaemons makes Run wait only for the command's process group. Without it, Run also waits
	// for processes outside the group with the inherited files open.
	LeaveDaemons bool
}

// A LossAction says how a command ends whose lock is lost.
type LossAction struct {
	Signal syscall.Signal
	Warn   bool // no signal: the loss is reported and the command goes on
}

// A Caller is the interface between Run and its program.
type Caller struct {
	Watchdog   *Watchdog
	Reporter   Reporter
	NotRenewed func() error // returns the loss for a lease whose renewals failed
}

// A Reporter receives events during a run. A single goroutine calls its methods and must not be
// delayed: it enforces the rules.
type Reporter interface {
	Started(pid int)            // the command runs
	Forwarded(s syscall.Signal) // a signal is forwarded to the command
	Lost(reason error)          // the lease is lost, or about to be lost
	Ended(end End)              // the command's own process ended
	Leftover(group int)         // the command ended, but processes doing its work continue
	Refused(pid int)            // a process must end, but this process has no right to kill it
}

// An End is the end of the command's own process.
type End struct {
	Status     syscall.WaitStatus
	Foreground bool // the command had the terminal's foreground
	HungUp     bool // the terminal is gone, and the command had its foreground
}

// Interrupted reports whether ^C or ^\ ended the command: it died from the signal, or returned the
// code of a shell whose command did.
func (e End) Interrupted() bool {
	code := ExitCode(e.Status)
	return e.Foreground && (code == CodeSignal+int(syscall.SIGINT) || code == CodeSignal+int(syscall.SIGQUIT))
}

// ErrMaxHold reports that Run ended a command after Rules.MaxHold.
var ErrMaxHold = errors.New("the command ran longer than its limit")

// ErrLate is the loss on a busy machine: the lease was renewed, but the watchdog process
// could not be extended in time. It wraps [dibs.ErrLost].
var ErrLate = fmt.Errorf("%w: the renewal reached the watchdog process too late: the machine is busy or the TTL is short", dibs.ErrLost)

var errWatchdogKilled = fmt.Errorf("%w: the watchdog process was killed", dibs.ErrLost)

// Run runs a command under a lease. It returns when no descendant except daemons is left, with the
// command's exit code as in [ExitCode]. A daemon left the process group and closed the inherited
// files. If the lease is about to be lost, all descendants are dead before the loss.
//
// The error is nil if the command ended by itself. Otherwise it is the reason why Run ended the
// command, such as [ErrMaxHold] or a [dibs.ErrLost], or why the command did not start. With
// LossAction.Warn it is a loss that was only reported.
func Run(lease Lease, command Command, rules Rules, caller Caller) (code int, err error) {
	t := openTerminal()
	defer t.close() // also if the start fails: the command may have had the foreground
	t.lent = t.isForeground(t.own) && !t.inPipeline()
	watchdog, child, err := start(lease, command, rules, caller.Watchdog, t.lent)
	if err != nil {
		return 0, err
	}
	t.command, t.had = child.pid, t.lent
	caller.Reporter.Started(child.pid)
	s := &supervisor{
		lease: lease, rules: rules, signals: caller.Watchdog.signals, report: caller.Reporter, notRenewed: caller.NotRenewed,
		child: child, watchdog: watchdog, tty: t, replies: watchdog.replies,
	}
	s.loop()
	watchdog.stop() // remaining daemons run on, even if the lease is lost later
	return ExitCode(s.exit.status), s.end.reason
}

// start starts a command under a watchdog. The watchdog first receives the lease's deadline. If the
// watchdog was killed, start tries another, up to three times.
func start(lease Lease, command Command, rules Rules, w *Watchdog, terminal bool) (*handle, *child, error) {
	const tries = 3
	for try := 1; ; try++ {
		watchdog, err := w.ready()
		if err != nil {
			return nil, nil, err
		}
		if !rules.OnLost.Warn {
			watchdog.extend(lease.Deadline(), rules.TTL)
		}
		child, err := watchdog.start(command, terminal, rules.LeaveDaemons)
		if !errors.Is(err, errWatchdogGone) || try == tries {
			return watchdog, child, err
		}
	}
}
