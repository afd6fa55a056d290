package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/dibslock/dibs"
	"github.com/spf13/cobra"
)

func (a *app) holdCmd() *cobra.Command {
	j := new(lockRequest)
	var noStdin bool
	c := &cobra.Command{
		Use:   "hold [flags] NAME[,NAME…]",
		Short: "Hold a lock until the input ends",
		Long: `Acquire NAME, say so on stdout, and hold it until stdin ends, or a signal comes,
or the process that has started dibs is gone. Meant for scripts and programs in
other languages: start it, read the line, do the work, close the pipe. The lock
is renewed until then.

The line is: held NAME TOKEN FENCE. With --json it is an object.

Exit codes:

    0      stdin has ended, and NAME was released
    75     NAME is taken
    76     the lock was lost, which ends dibs at once
    125    the store
    128+N  signal N has ended it`,
		Example: `  # a shell that holds a lock while it does several things
  coproc dibs hold nightly; read -r _ name token fence <&"${COPROC[0]}"
  ./backup.sh; ./upload.sh
  eval "exec ${COPROC[1]}>&-"; wait "$COPROC_PID"

  # for as long as a terminal is open: ^D gives it back
  dibs hold deploy`,
		Args: argCount(1, 1),
		RunE: func(_ *cobra.Command, args []string) error { return a.hold(j, args[0], noStdin) },
	}
	j.flags(c.Flags())
	c.Flags().BoolVar(&noStdin, "no-stdin", false, "do not read stdin: hold until a signal comes, or the parent process is gone")
	return c
}

func (a *app) hold(j *lockRequest, name string, noStdin bool) (err error) {
	if err := j.check(a, name); err != nil {
		return err
	}
	gone := parentGone()
	locks, closeAll, err := a.client()
	if err != nil {
		return err
	}
	defer func() {
		a.monitor.end()
		err = a.explain(errors.Join(err, closeAll()))
	}()
	lease, err := a.waitForLock(locks, j)
	if err != nil {
		return err
	}
	if err := a.printHandle(lease, j); err != nil {
		return errors.Join(err, lease.Unlock())
	}
	var input <-chan struct{}
	if !noStdin {
		input = endOfInput(a.in)
	}
	begun := time.Now()
	err = errors.Join(a.waitForEnd(lease, input, gone), ignoreLost(lease.Unlock()))
	if !errors.Is(err, dibs.ErrLost) && !errors.Is(err, dibs.ErrUnavailable) {
		a.logVerbose("released %s after %s", quoted(j.names), brief(time.Since(begun)))
	}
	return err
}

// untilEnd returns when the lease is to be given back, or is lost.
func (a *app) waitForEnd(lease *dibs.Lease, input, gone <-chan struct{}) error {
	for {
		select {
		case <-input:
			return nil
		case <-gone:
			return nil
		case <-lease.Context().Done():
			return lease.Err()
		case s := <-a.caught:
			if n, _ := s.(syscall.Signal); isTermination(n) {
				return exitWith(exitSignal+int(n), nil)
			}
		}
	}
}

// unlessLost is the error of an Unlock whose loss was told before.
func ignoreLost(err error) error {
	if errors.Is(err, dibs.ErrLost) {
		return nil
	}
	return err
}

// drained closes the channel when a file has ended.
func endOfInput(in io.Reader) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, bufio.NewReader(in)) // an error is an end, too
	}()
	return done
}

// parentGone closes the channel when whoever has started this process is gone.
func parentGone() <-chan struct{} {
	const every = 100 * time.Millisecond // what cannot be waited for is looked at
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
