package localstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A user of the database is a process using it, with its log and index. SQLite finds these files by
// their names. If a file is removed or replaced while somebody uses it, the next process would open
// another database, without the leases in the old one. So
//   - a process opens and closes the database while it holds the liveness file's opening lock;
//   - each user holds a shared lock there while the database is open;
//   - the first user writes the files' inodes into the liveness file, and each later user compares
//     them: see checkUsers;
//   - each operation compares them, and so does Watch: see checkFiles.
//
// A shared flock on the directory and on the liveness file makes systemd-tmpfiles leave them alone.

// openingTimeout limits a process's wait for others, which open the file in turn.
const openingTimeout = 30 * time.Second

// databaseFiles are the files that SQLite finds by name, as path suffixes.
var databaseFiles = []string{"", "-wal", "-shm"}

// A knownFile is a file that must not be removed or replaced while it is in use.
type knownFile struct {
	path string
	info os.FileInfo
}

// rememberFiles records the files in use. Some systems have no liveness file or write queue.
func (f *file) rememberFiles() error {
	for _, end := range databaseFiles {
		info, err := os.Stat(f.path + end)
		if err != nil {
			return err
		}
		f.known = append(f.known, knownFile{f.path + end, info})
	}
	for _, end := range []string{".alive", ".turn"} {
		if info, err := os.Stat(f.path + end); err == nil {
			f.known = append(f.known, knownFile{f.path + end, info})
		}
	}
	return nil
}

// checkFiles returns an error if a file in use was removed or replaced: operations on it exclude no
// process that opens the file later.
func (f *file) checkFiles() error {
	for _, k := range f.known {
		now, err := os.Stat(k.path)
		switch {
		case err == nil && os.SameFile(now, k.info):
		case err == nil:
			return f.newError(moved, fmt.Errorf("%s is another file", k.path))
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return f.newError(moved, err)
		default:
			return f.explain(err)
		}
	}
	return nil
}

// isMoved reports whether an operation failed because the files in use are not the files that later
// processes find.
func isMoved(err error) bool {
	var f *fileError
	return errors.As(err, &f) && f.what == moved
}

// openLocked opens the database while nobody else opens or closes it.
func (f *file) openLocked() error {
	f.session = openSession(f.path)
	if !f.session.lock(time.Now().Add(openingTimeout)) {
		return f.newError(stayedBusy, errors.New("another process is opening it"))
	}
	defer f.session.unlock()
	first := !f.session.hasUsers()
	if !first {
		if err := f.checkUsers(); err != nil {
			return err
		}
	}
	if err := f.connect(); err != nil {
		return err
	}
	if err := f.rememberFiles(); err != nil {
		return err
	}
	if first {
		f.session.write(inodesOf(f.path))
	}
	f.session.use()
	return nil
}

// checkUsers returns an error if the files differ from the files that the database's users opened.
func (f *file) checkUsers() error {
	if used := f.session.read(); used != "" && used != inodesOf(f.path) {
		return f.newError(sideFiles, nil)
	}
	return nil
}

// closeLocked closes the database: the last to do so removes the log and the index.
func (f *file) closeLocked() error {
	const limit = time.Second
	if f.session.lock(time.Now().Add(limit)) {
		defer f.session.unlock()
	}
	defer f.session.close()
	var errs []error
	for _, s := range f.prepared {
		errs = append(errs, s.Close())
	}
	if f.conn != nil {
		errs = append(errs, f.conn.Close())
	}
	if f.db != nil {
		errs = append(errs, f.db.Close())
	}
	return errors.Join(errs...)
}
