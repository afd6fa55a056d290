package localstore

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/dibslock/dibs/driver"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A fileError names the problem with the file, and its remedy.
type fileError struct {
	path    string
	what    string
	cause   error // may be nil
	refused bool  // nothing was done, and a retry is useless
}

func (f *fileError) Error() string {
	s := f.path + ": " + f.what
	if f.cause != nil {
		s += ": " + f.cause.Error()
	}
	return s
}

func (f *fileError) Unwrap() error { return f.cause }

// Is makes errors.Is find driver.ErrDisconnected if this process cannot use the file any more: then
// nobody waits for it.
func (f *fileError) Is(target error) bool {
	return target == driver.ErrDisconnected && (f.what == moved || f.what == storeClosed || f.what == damaged)
}

// A file's problems, each with advice.
const (
	fullDisk     = "disk is full: make room on it"
	readOnly     = "cannot open or write it: give this user permission to read and write it and its directory, or choose another file; the disk may also be full"
	damaged      = "file is corrupt: stop all users and move it aside (with -wal and -shm); a new one will be created"
	notDibs      = "not a dibs file: choose another file"
	notRegular   = "a directory or a device: choose a regular file"
	stayedBusy   = "busy until the deadline: check whether a process that uses it is stopped or hangs during an operation"
	ioFailed     = "cannot read or write it"
	moved        = "moved, deleted or replaced since it was opened, or a side file was: its locks are lost, restart this program"
	sideFiles    = "it, or its -wal or -shm file, was removed or replaced while other programs use it: end these programs, then start this one again"
	otherMachine = "also used by another machine, or by a container with its own clock: file locks work on one machine only; choose a file that is not shared"
	storeClosed  = "store is closed"
	newerFormat  = "created by a newer version of dibs: update this program, or choose another file"
)

func (f *file) newError(what string, cause error) error { return &fileError{f.path, what, cause, true} }

// explain translates a database or system error into a problem with the file.
func (f *file) explain(err error) error {
	var known *fileError
	var system syscall.Errno
	var database *sqlite.Error
	switch {
	case errors.As(err, &known), !errors.As(err, &system) && !errors.As(err, &database):
		return err // already explained, or not about the file
	case hasCode(err, sqlite3.SQLITE_FULL), hasCode(err, sqlite3.SQLITE_IOERR_SHMSIZE), errors.Is(system, syscall.ENOSPC):
		return f.newError(fullDisk, err)
	case hasCode(err, sqlite3.SQLITE_READONLY), hasCode(err, sqlite3.SQLITE_CANTOPEN), hasCode(err, sqlite3.SQLITE_PERM), errors.Is(err, fs.ErrPermission):
		return f.newError(readOnly, err)
	case hasCode(err, sqlite3.SQLITE_NOTADB):
		return f.newError(notDibs, err)
	case hasCode(err, sqlite3.SQLITE_CORRUPT), hasCode(err, sqlite3.SQLITE_SCHEMA), hasCode(err, sqlite3.SQLITE_ERROR):
		return f.newError(damaged, err)
	}
	return &fileError{f.path, ioFailed, err, false}
}

// hasCode reports whether an error's SQLite code is this code or an extension of it.
func hasCode(err error, code int) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code() == code || e.Code()&0xff == code
}

func isBusy(err error) bool {
	return hasCode(err, sqlite3.SQLITE_BUSY) || hasCode(err, sqlite3.SQLITE_LOCKED) || hasCode(err, sqlite3.SQLITE_PROTOCOL)
}
