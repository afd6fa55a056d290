package main

import (
	"bufio"
	"errors"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
	"github.com/dibslock/dibs/dashboard/view"
	"github.com/spf13/cobra"
)

func holdCmd(a *app) *cobra.Command {
	j := new(lockRequest)
	var noStdin bool
	c := &cobra.Command{
		Use:   "hold [flags] NAME…",
		Short: "Hold a lock until the input ends",
		Long: `Acquire NAME, print a line on stdout, and hold NAME until stdin ends, a
termination signal arrives, or the parent process of dibs exits. The lock is
renewed until then. This is meant for scripts and programs in other languages:
start dibs, read the line, do the work, close the pipe.

The line is: held TOKEN FENCE. With --json it is an object, which also has the
names, and the fence of each name.

Exit codes:

    0      stdin has ended, and NAME was released
    75     NAME is held
    76     the lock was lost; dibs exits at once
    125    the store or dibs failed
    128+N  signal N has ended dibs`,
		Example: `  # a shell script that holds a lock during several commands
  coproc dibs hold nightly; read -r _ token fence <&"${COPROC[0]}"
  ./backup.sh; ./upload.sh
  eval "exec ${COPROC[1]}>&-"; wait "$COPROC_PID"

  # on a terminal: ^D releases the lock
  dibs hold deploy`,
		Args: argCount(1, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error { return hold(a, j, args, noStdin) },
	}
	j.flags(c.Flags(), a.con)
	j.minHoldFlag(c.Flags())
	c.Flags().BoolVar(&noStdin, "no-stdin", false, "do not read stdin: hold until a signal arrives or the parent process exits")
	return c
}

func hold(a *app, j *lockRequest, names []string, noStdin bool) (err error) {
	if err := j.check(a, names); err != nil {
		return err
	}
	gone := parentGone()
	s, err := a.connect(untilExit)
	if err != nil {
		return err
	}
	defer func() {
		s.monitor.Close()
		err = s.store.explain(errors.Join(err, s.close()))
	}()
	lease, err := s.waitForLock(j)
	if err != nil {
		return err
	}
	if err := printHandle(a.con, lease, j); err != nil {
		return errors.Join(err, lease.Unlock())
	}
	var input <-chan struct{}
	if !noStdin {
		input = endOfInput(a.con.in)
	}
	begun := time.Now()
	err = errors.Join(s.signals.waitForEnd(lease, input, gone), ignoreLost(lease.Unlock()))
	if !errors.Is(err, dibs.ErrLost) && !errors.Is(err, dibs.ErrUnavailable) {
		s.logVerbose("released %s after %s", view.Quoted(j.names), view.Brief(time.Since(begun)))
	}
	return err
}

// waitForEnd returns when the lease must be released, or is lost.
func (s signals) waitForEnd(lease *dibs.Lease, input, gone <-chan struct{}) error {
	for {
		select {
		case <-input:
			return nil
		case <-gone:
			return nil
		case <-lease.Context().Done():
			return lease.Err()
		case caught := <-s:
			switch n, _ := caught.(syscall.Signal); {
			case supervise.IsTermination(n):
				return signalError{n}
			case n == syscall.SIGTSTP:
				stopUnderShell()
			}
		}
	}
}

// ignoreLost drops ErrLost from an Unlock's result: the loss was already reported.
func ignoreLost(err error) error {
	if errors.Is(err, dibs.ErrLost) {
		return nil
	}
	return err
}

// endOfInput reads in to its end and then closes the returned channel.
func endOfInput(in io.Reader) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, bufio.NewReader(in)) // an error also ends the input
	}()
	return done
}

// parentGone returns a channel, which is closed when the parent process exits.
func parentGone() <-chan struct{} {
	const every = 100 * time.Millisecond // there is no event for this, so poll
	gone, parent := make(chan struct{}), os.Getppid()
	go func() {
		defer close(gone)
		for range time.Tick(every) {
			if os.Getppid() != parent {
				return
			}
		}
	}()
	return gone
}
