package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
)

// A commandSignalError reports that a signal ended the command, or the terminal or a key did. dibs
// ends by the same signal: a shell or make then stops, as it does without dibs.
type commandSignalError struct {
	codeError
	signal syscall.Signal
	typed  bool // dibs' process group did not receive it: only the command's did, or none
}

func (e commandSignalError) Unwrap() error { return e.codeError }

// typed returns the result when a subcommand was ended by a key that the terminal did not turn into
// a signal.
func typed(s syscall.Signal) error {
	return commandSignalError{codeError{supervise.CodeSignal + int(s), nil}, s, true}
}

// endOf returns the result of a run whose command ended by itself.
func endOf(end supervise.End, forwarded bool) error {
	code := supervise.ExitCode(end.Status)
	switch {
	case end.HungUp: // even if the command handled it
		return commandSignalError{codeError{supervise.CodeSignal + int(syscall.SIGHUP), nil}, syscall.SIGHUP, !forwarded}
	case !end.Status.Signaled():
		return exitWith(code, nil)
	}
	return commandSignalError{codeError{code, nil}, end.Status.Signal(), end.Interrupted() && !forwarded}
}

// dieOf ends dibs by the signal that ended its command or its wait. It returns if there is no such
// signal, or if it cannot end dibs.
func dieOf(err error) {
	var wait signalError
	var command commandSignalError
	switch {
	case errors.As(err, &command) && codeOf(err) == command.code:
		if command.typed { // the shell and the job's other programs did not receive it
			_ = syscall.Kill(0, command.signal)
		}
		die(command.signal)
	case errors.As(err, &wait) && codeOf(err) == supervise.CodeSignal+int(wait.Signal):
		die(wait.Signal)
	}
}

// die ends dibs by a signal, without a core dump and without a goroutine dump. It returns if this
// is not possible: for other signals, as the first process in a container, and if dibs' caller
// ignores the signal.
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
