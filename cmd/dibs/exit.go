package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dibslock/dibs"
	"github.com/dibslock/dibs/cmd/dibs/internal/supervise"
)

// The exit codes from dibs itself. All others are the command's: see package supervise.
const (
	exitUsage   = 64  // invalid command line
	exitBusy    = 75  // the name is held and the wait is over; EX_TEMPFAIL
	exitLost    = 76  // the lease was lost while the command ran, even if it succeeded
	exitMaxHold = 124 // as timeout(1)
	exitTrouble = 125 // dibs or the store failed; the command was not run

	codesForHelp = `Exit codes:

    those of COMMAND, and 128+N if signal N ended it
    64   invalid command line
    75   NAME is held
    76   the lock was lost, even if COMMAND succeeded
    124  COMMAND ran longer than --max-hold
    125  the store or dibs failed; COMMAND was not run
    126  COMMAND cannot be run
    127  COMMAND was not found`
)

// codesOfElection lists elect's exit codes: it waits without limit, so 75 is missing.
var codesOfElection = strings.Replace(codesForHelp, "    75   NAME is held\n", "", 1)

// A usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// A codeError is an error with its own exit code. If the error is nil, dibs exits with the code and
// prints nothing.
type codeError struct {
	code int
	error
}

func (e codeError) Unwrap() error { return e.error }

func (e codeError) Error() string {
	if e.error == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.error.Error()
}

// A busyResult is the codeError for a lock held until the wait was over.
type busyResult struct{ codeError }

func (e busyResult) Unwrap() error { return e.codeError }

// exitWith returns an error that makes dibs exit with a code. It prints err unless it is nil.
func exitWith(code int, err error) error {
	if code == 0 && err == nil {
		return nil
	}
	return codeError{code, err}
}

// silent reports whether an error is not printed: its exit code is enough. This includes signals,
// whose sender needs no message.
func silent(err error) bool {
	var coded codeError
	if errors.As(err, &coded) {
		return coded.error == nil
	}
	return errors.As(err, new(signalError))
}

func codeOf(err error) int {
	var coded codeError
	var bad usageError
	var signalled signalError
	var start *supervise.StartError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &start):
		return start.Code
	case errors.As(err, &bad), errors.Is(err, dibs.ErrInvalid):
		return exitUsage
	case errors.As(err, &signalled):
		return supervise.CodeSignal + int(signalled.Signal)
	case errors.Is(err, dibs.ErrLost):
		return exitLost
	case errors.Is(err, dibs.ErrBusy):
		return exitBusy
	}
	return exitTrouble
}
