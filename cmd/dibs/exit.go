package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/dibslock/dibs"
)

// The exit codes that are not those of the command that was run.
const (
	exitUsage     = 64  // the command line makes no sense
	exitBusy      = 75  // the name is taken, and the wait is over; as EX_TEMPFAIL
	exitLost      = 76  // the lease was lost while the command ran, even if that ended well
	exitMaxHold   = 124 // as timeout(1)
	exitTrouble   = 125 // dibs itself, or the store: the command was not run
	exitCannotRun = 126 // found, and not to be run
	exitNotFound  = 127
	exitSignal    = 128 // and the signal's number

	codesForHelp = `Exit codes:

    those of COMMAND, and 128+N if signal N ended it
    64   the command line is wrong
    75   NAME is taken
    76   the lock was lost, even if COMMAND succeeded
    124  --max-hold is over
    125  the store, or dibs itself, failed: COMMAND was not run
    126  COMMAND cannot be run
    127  COMMAND was not found`
)

// codesOfElection are the same without a wait that could be over.
var codesOfElection = strings.Replace(codesForHelp, "    75   NAME is taken\n", "", 1)

// A usageError is one of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// A codeError is an error with an exit code of its own. Without an error it is the code
// alone, and nothing is said.
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

// exitWith returns what ends dibs with a code and, unless err is nil, a word.
func exitWith(code int, err error) error {
	if code == 0 && err == nil {
		return nil
	}
	return codeError{code, err}
}

// finish tells an error, and returns the exit code.
func (a *app) finish(err error) int {
	if err == nil {
		return 0
	}
	code := codeOf(err)
	if !silent(err) {
		a.printError(err)
	}
	return code
}

// silent reports whether the exit code says it all: as with a signal, whose sender knows.
func silent(err error) bool {
	var alone codeError
	if errors.As(err, &alone) {
		return alone.error == nil
	}
	return errors.As(err, new(signalError))
}

func (a *app) printError(err error) {
	text := errorText(err)
	if a.json {
		a.event(event{Event: "error", Error: text, Code: codeOf(err)})
		return
	}
	fmt.Fprintf(a.err, "%sdibs: %s\n", a.clear(), text)
}

func codeOf(err error) int {
	var coded codeError
	var bad usageError
	var signalled signalError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &bad), errors.Is(err, dibs.ErrInvalid):
		return exitUsage
	case errors.As(err, &signalled):
		return exitSignal + int(signalled.Signal)
	case errors.Is(err, dibs.ErrLost):
		return exitLost
	case errors.Is(err, dibs.ErrBusy):
		return exitBusy
	case errors.Is(err, exec.ErrNotFound):
		return exitNotFound
	}
	return exitTrouble
}
