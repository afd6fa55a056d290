package localstore

import (
	"errors"
	"io/fs"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A fault is what is wrong with the file: which one, what, and what to do.
type fault struct {
	path    string
	what    string
	cause   error // or nil
	refused bool  // nothing was done, and asking again at once is of no use
}

func (f *fault) Error() string {
	s := f.path + ": " + f.what
	if f.cause != nil {
		s += ": " + f.cause.Error()
	}
	return s
}

func (f *fault) Unwrap() error { return f.cause }

// The faults of a file, each with its advice.
const (
	fullDisk  = "there is no room to write: make room on the disk"
	readOnly  = "it cannot be opened or written: give this user the right to read and write it and its directory, or name another file; or the disk is full"
	damaged   = "it is damaged: stop what uses it, and move it and its -wal and -shm away: a new one is made"
	foreign   = "it is not a file of dibs: name another one"
	noFile    = "it is a directory or a device: name a file"
	occupied  = "it was busy until the deadline: see which process that uses it is stopped, or hangs in the middle of an operation"
	trouble   = "it cannot be read or written"
	moved     = "it was moved, deleted or replaced since it was opened: start this program again"
	elsewhere = "another machine, or a container with a clock of its own, uses it too: these locks exclude on one machine only: name a file that is not shared"
	closed    = "the store was closed"
	newer     = "a newer version of dibs made it: update this program, or name another file"
)

func (f *file) fault(what string, cause error) error { return &fault{f.path, what, cause, true} }

// explain says what an error of the database means for the file.
func (f *file) explain(err error) error {
	var told *fault
	var system syscall.Errno
	var database *sqlite.Error
	switch {
	case errors.As(err, &told), !errors.As(err, &system) && !errors.As(err, &database):
		return err // it says what is wrong, or has to do with something else
	case is(err, sqlite3.SQLITE_FULL), is(err, sqlite3.SQLITE_IOERR_SHMSIZE), errors.Is(system, syscall.ENOSPC):
		return f.fault(fullDisk, err)
	case is(err, sqlite3.SQLITE_READONLY), is(err, sqlite3.SQLITE_CANTOPEN), is(err, sqlite3.SQLITE_PERM), errors.Is(err, fs.ErrPermission):
		return f.fault(readOnly, err)
	case is(err, sqlite3.SQLITE_NOTADB):
		return f.fault(foreign, err)
	case is(err, sqlite3.SQLITE_CORRUPT), is(err, sqlite3.SQLITE_SCHEMA), is(err, sqlite3.SQLITE_ERROR):
		return f.fault(damaged, err)
	}
	return &fault{f.path, trouble, err, false}
}

// is reports whether an error has a code of SQLite, or one that refines it.
func is(err error, code int) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code() == code || e.Code()&0xff == code
}

func busy(err error) bool {
	return is(err, sqlite3.SQLITE_BUSY) || is(err, sqlite3.SQLITE_LOCKED) || is(err, sqlite3.SQLITE_PROTOCOL)
}
