package localstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A session holds the locks of a database user. It opens the file separately from the liveness,
// whose file child processes inherit with its locks.
type session struct {
	fd  int // -1: there are no such locks here
	dir int
}

// Bytes in the liveness file. The owners' bytes are between them.
const (
	usersByte   = 0
	openingByte = 1<<62 + 1
)

func openSession(path string) session {
	s := session{fd: -1, dir: -1}
	fd, err := openAgain(path+".alive", unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return s // opening the database fails for the same reason, and says so
	}
	s.fd = fd
	_ = unix.Flock(s.fd, unix.LOCK_SH|unix.LOCK_NB)
	if s.dir, err = openAgain(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		s.dir = -1
	} else {
		_ = unix.Flock(s.dir, unix.LOCK_SH|unix.LOCK_NB)
	}
	return s
}

func (s session) set(kind int16, at int64) error {
	return unix.FcntlFlock(uintptr(s.fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: at, Len: 1})
}

// lock waits for the opening lock, and reports whether it was acquired, or cannot be used.
func (s session) lock(until time.Time) bool {
	const pause = 2 * time.Millisecond
	for s.fd >= 0 {
		switch err := s.set(unix.F_WRLCK, openingByte); {
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR):
			return true
		case time.Now().After(until):
			return false
		}
		time.Sleep(pause)
	}
	return true
}

func (s session) unlock() {
	if s.fd >= 0 {
		_ = s.set(unix.F_UNLCK, openingByte)
	}
}

// hasUsers reports whether others have the database open.
func (s session) hasUsers() bool {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: usersByte, Len: 1}
	return s.fd >= 0 && unix.FcntlFlock(uintptr(s.fd), unix.F_OFD_GETLK, &lock) == nil && lock.Type != unix.F_UNLCK
}

// use shows that this process uses the database.
func (s session) use() {
	if s.fd >= 0 {
		_ = s.set(unix.F_RDLCK, usersByte)
	}
}

// write stores a text for the other users.
func (s session) write(text string) {
	if s.fd >= 0 {
		_, _ = unix.Pwrite(s.fd, []byte(text), 0)
		_ = unix.Ftruncate(s.fd, int64(len(text)))
	}
}

func (s session) read() string {
	text := make([]byte, 256)
	n, err := unix.Pread(s.fd, text, 0)
	if err != nil {
		return ""
	}
	return string(text[:n])
}

func (s session) close() {
	for _, fd := range []int{s.fd, s.dir} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// inodesOf returns a text with the inodes of a database's files. While a file is open anywhere, no
// other file gets its inode.
func inodesOf(path string) string {
	var text strings.Builder
	for _, end := range databaseFiles {
		var stat unix.Stat_t
		if err := unix.Stat(path+end, &stat); err != nil {
			stat.Ino = 0
		}
		fmt.Fprintf(&text, "database%s %d\n", end, stat.Ino)
	}
	return text.String()
}
