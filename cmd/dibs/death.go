package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
)

// A commandSignalError reports that a signal has ended the command, or the terminal or a key
// has. dibs ends by the same signal: a shell or make then stops, as it does without dibs.
type commandSignalError struct {
	codeError
	signal syscall.Signal
	typed  bool // the process group of dibs has not received it: only that of the command has, or none
}

func (e commandSignalError) Unwrap() error { return e.codeError }

// typed returns the result of a subcommand that a key has ended which the terminal did not
// turn into a signal.
func typed(s syscall.Signal) error {
	return commandSignalError{codeError{supervise.CodeSignal + int(s), nil}, s, true}
}

// endOf returns the result of a run whose command has ended by itself.
func endOf(end supervise.End, forwarded bool) error {
	code := supervise.ExitCode(end.Status)
	switch {
	case end.HungUp: // also if the command has handled it
		return commandSignalError{codeError{supervise.CodeSignal + int(syscall.SIGHUP), nil}, syscall.SIGHUP, !forwarded}
	case !end.Status.Signaled():
		return exitWith(code, nil)
	}
	return commandSignalError{codeError{code, nil}, end.Status.Signal(), end.Interrupted() && !forwarded}
}

// dieOf ends dibs by the signal that has ended its command or its wait. It returns if
// there is no such signal, or if dibs cannot die of it.
func dieOf(err error) {
	var wait signalError
	var command commandSignalError
	switch {
	case errors.As(err, &command) && codeOf(err) == command.code:
		if command.typed { // the shell and the other programs of the job have not received it
			_ = syscall.Kill(0, command.signal)
		}
		die(command.signal)
	case errors.As(err, &wait) && codeOf(err) == supervise.CodeSignal+int(wait.Signal):
		die(wait.Signal)
	}
}

// die ends dibs by a signal, without a core dump and without a dump of goroutines. It
// returns if that is not possible: for other signals, as the first process of a container,
// and if the caller of dibs ignores the signal.
func die(s syscall.Signal) {
	const delivery = time.Second
	switch s {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM:
		if os.Getpid() == 1 || signal.Ignored(s) {
			return
		}
		signal.Reset(s)
		_ = syscall.Kill(os.Getpid(), s)
		time.Sleep(delivery) // on a busy machine
	}
}
