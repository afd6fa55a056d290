// Package supervise runs a command under a lock, so that the command is dead before
// anyone else can acquire the lock.
//
// Two processes of the program share the work. The supervisor, which is [Run], holds the
// lock and forwards signals. The watchdog process, which package initialisation runs, starts the
// command and kills it if the supervisor is killed or stopped.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
)

// A Lease is the lock that a command runs under, such as a *dibs.Lease. Its methods are
// called by one goroutine.
type Lease interface {
	Context() context.Context // ends when the lease is lost
	Deadline() time.Time      // when the lease is lost unless it is renewed
	Err() error               // the loss, or nil
}

// Rules are the time limits of a command under a lock. All are positive.
type Rules struct {
	KillAfter time.Duration // from the signal that asks the command to end to SIGKILL
	OnLost    LossAction
	MaxHold   time.Duration // zero: no limit
	TTL       time.Duration // of the lease

	// LeaveDaemons makes Run wait for the command's process group only. Without it, Run also
	// waits for processes outside the group that have the inherited files open.
	LeaveDaemons bool
}

// A LossAction says how a command ends whose lock is lost.
type LossAction struct {
	Signal syscall.Signal
	Warn   bool // no signal: the loss is reported and the command goes on
}

// A Caller is what Run needs of the program that calls it.
type Caller struct {
	Watchdog   *Watchdog
	Reporter   Reporter
	NotRenewed func() error // returns the loss of a lease whose renewals have failed
}

// A Reporter receives what happens during a run. Its methods are called by one goroutine,
// which must not be delayed: it enforces the rules.
type Reporter interface {
	Started(pid int)            // the command runs
	Forwarded(s syscall.Signal) // a signal is forwarded to the command
	Lost(reason error)          // the lease is lost, or about to be lost
	Ended(end End)              // the command's own process has ended
	Leftover(group int)         // the command has ended, and processes that do its work run on
	Refused(pid int)            // a process must end, and this one may not kill it
}

// An End is the end of the command's own process.
type End struct {
	Status     syscall.WaitStatus
	Foreground bool // the command had the foreground of the terminal
	HungUp     bool // the terminal is gone, and the command had its foreground
}

// Interrupted reports whether ^C or ^\ has ended the command: it died of the signal, or
// returned the code of a shell whose command did.
func (e End) Interrupted() bool {
	code := ExitCode(e.Status)
	return e.Foreground && (code == CodeSignal+int(syscall.SIGINT) || code == CodeSignal+int(syscall.SIGQUIT))
}

// ErrMaxHold reports that Run has ended a command after Rules.MaxHold.
var ErrMaxHold = errors.New("the command ran longer than its limit")

// ErrLate is the loss on a busy machine: the lease was renewed, but the watchdog process
// could not be extended in time. It wraps [dibs.ErrLost].
var ErrLate = fmt.Errorf("%w: the renewal reached the watchdog process too late: the machine is busy or the TTL is short", dibs.ErrLost)

var errWatchdogKilled = fmt.Errorf("%w: the watchdog process was killed", dibs.ErrLost)

// Run runs a command under a lease. It returns when no descendant of the command is left
// but daemons, with the command's exit code as [ExitCode] has it. A daemon has left the
// process group and closed the files that it has inherited. If the lease is about to be
// lost, all descendants are dead before that.
//
// The error is nil if the command has ended by itself. Otherwise it is the reason why Run
// has ended the command, such as [ErrMaxHold] or a [dibs.ErrLost], or why the command did
// not start. With LossAction.Warn it is a loss that was only reported.
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

// start starts a command under a watchdog. The watchdog receives the deadline of the
// lease first. If the watchdog was killed, start tries another one, three times in all.
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
