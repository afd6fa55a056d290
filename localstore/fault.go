package localstore

import (
	"errors"
	"io/fs"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A fileError says what is wrong with the file, and what to do.
type fault struct {
	path    string
	what    string
	cause   error // may be nil
	refused bool  // nothing was done, and a retry is useless
}

func (f *fault) Error() string {
	s := f.path + ": " + f.what
	if f.cause != nil {
		s += ": " + f.cause.Error()
	}
	return s
}

func (f *fault) Unwrap() error { return f.cause }

// The problems of a file, each with advice.
const (
	fullDisk  = "disk is full: make room on it"
	readOnly  = "cannot open or write it: give this user permission to read and write it and its directory, or choose another file; the disk may also be full"
	damaged   = "file is corrupt: stop all users and move it aside (with -wal and -shm); a new one will be created"
	foreign   = "not a dibs file: choose another file"
	noFile    = "a directory or a device: choose a regular file"
	occupied  = "busy until the deadline: check whether a process that uses it is stopped or hangs during an operation"
	trouble   = "cannot read or write it"
	moved     = "moved, deleted or replaced since it was opened: restart this program"
	elsewhere = "also used by another machine, or by a container with its own clock: file locks work on one machine only; choose a file that is not shared"
	closed    = "store is closed"
	newer     = "created by a newer version of dibs: update this program, or choose another file"
)

func (f *file) fault(what string, cause error) error { return &fault{f.path, what, cause, true} }

// explain returns what an error of the database or the system means for the file.
func (f *file) explain(err error) error {
	var told *fault
	var system syscall.Errno
	var database *sqlite.Error
	switch {
	case errors.As(err, &told), !errors.As(err, &system) && !errors.As(err, &database):
		return err // already explained, or not about the file
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

// hasCode reports whether an error has this SQLite code, or an extended code of it.
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
